"""Texts on which two tokenizers must agree, token for token: scripts with combining marks, digits, spaces, code, tags.

The pre-tokenizers of Qwen2 and Qwen3.5 differ in \\p{M}, the combining marks: letters of Kannada, Hindi, Tamil, Thai or
Arabic carry them, those of English never do, so English alone would prove nothing.
"""

from __future__ import annotations

from typing import Final

TEXTS: Final = (
    "Hello! I'm Annie, and it's 7:45 p.m.; you've 12 new e-mails.",
    "We'll see what they'd say: that's all I've got, isn't it? DON'T SHOUT.",
    "ನಮಸ್ಕಾರ! ನಿಮ್ಮ ಹೆಸರೇನು? ನಾನು ಬೆಂಗಳೂರಿನಲ್ಲಿ ವಾಸಿಸುತ್ತಿದ್ದೇನೆ.",
    "ಇಂದು ಹವಾಮಾನ ಹೇಗಿದೆ? ತಾಪಮಾನ ೨೭ ಡಿಗ್ರಿ, ಅಂದರೆ 27 °C.",
    "नमस्ते, आप कैसे हैं? मैं ठीक हूँ। क्षत्रिय ज्ञान",
    "தமிழ் மொழி, తెలుగు భాష, മലയാളം, বাংলা ভাষা",
    "สวัสดีครับ วันนี้อากาศเป็นอย่างไร",
    "مُحَمَّدٌ يَكْتُبُ الدَّرْسَ، وَالسَّلَامُ عَلَيْكُمْ",
    "שָׁלוֹם עֲלֵיכֶם",
    "你好，今天是2026年11月21日。東京タワーへ行きたいです。한국어도 됩니다.",
    "Ünïcödé: naïve café, cafe\u0301, Z\u0351\u036b\u0343algo, \u00e5 A\u030a, ﬁne",
    "Привет, как дела? Γειά σου Κόσμε! Xin chào Việt Nam",
    "👩‍👩‍👧‍👦 🇮🇳 👍🏽 ☕️ ✅ → ∑ ≤ €",
    "1234567890 3.14159 0x1F 1,000,000 ½ ² ١٢٣ ೧೨೩",
    "  two  spaces,\ttab\t\tand \n new\n\n\nlines \r\n carriage \r\n\r\n end   ",
    'def f(x: int) -> str:\n    return f"{x:>08b}"  # comment\n\n\nprint(f(3))\n',
    '<tool_call>\n{"name": "web_search", "arguments": {"query": "ಮೈಸೂರು"}}\n</tool_call>',
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "https://example.org/a_b?c=d&e=%20f#g user@example.org C:\\dir\\file.txt",
    "",
    " ",
    "a",
)
