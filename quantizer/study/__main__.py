"""`python -m quantizer.study SIZE SEED OUT`."""

from quantizer.study.run import main

main()
