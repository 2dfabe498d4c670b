"""A study of what NVFP4 takes from a pretrained model, and what brings it back: `python -m quantizer.study`."""
