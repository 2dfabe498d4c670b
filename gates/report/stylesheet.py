"""The page's style sheet, for light and dark mode, desktop, phone and print."""

from __future__ import annotations

from typing import Final

_LIGHT: Final = """
--page:#f7f7f5;--card:#fff;--ink:#1b1c1e;--soft:#5d6168;--line:#e2e2de;--faint:#efefec;
--pass:#18794e;--pass-bg:#e6f4ec;--fail:#c02a2f;--fail-bg:#fbe9e9;--open:#8f5f00;--open-bg:#fdf2d8;
--ours:#2456c7;--theirs:#7c828a;--allowed:#18794e1f;--limit:#1b1c1e;
"""

_DARK: Final = """
--page:#121315;--card:#1a1b1e;--ink:#e9e9e6;--soft:#9ba1a9;--line:#303237;--faint:#232529;
--pass:#4cc38a;--pass-bg:#12291f;--fail:#ff8583;--fail-bg:#351a1b;--open:#e9b949;--open-bg:#2f2610;
--ours:#82a8ff;--theirs:#8f969f;--allowed:#4cc38a24;--limit:#e9e9e6;
"""

STYLE: Final = (
    f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
@media print{{:root{{color-scheme:light;{_LIGHT}--page:#fff}}}}
"""
    + """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Noto Sans",sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1020px;margin:0 auto;padding:28px 20px 64px}
h1,h2,h3,p,ul,dl,figure{margin:0}
h1{font-size:25px;line-height:1.28;font-weight:650;letter-spacing:-.012em;text-wrap:pretty;overflow-wrap:anywhere}
h2{font-size:18px;font-weight:650;margin:44px 0 4px;letter-spacing:-.005em}
h3{font-size:15px;font-weight:650}
a{color:var(--ours)}
code,pre,.mono{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Noto Sans Mono",monospace}
code,.mono{overflow-wrap:anywhere}
.soft{color:var(--soft)}
.lead{color:var(--soft);margin-bottom:14px;max-width:72ch}
.small{font-size:13px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px}

.verdict{padding:22px 24px;border-left:6px solid currentColor}
.verdict>*{color:var(--ink)}
.verdict .word{color:inherit;font-weight:700;font-size:13px;letter-spacing:.09em;text-transform:uppercase;margin-bottom:4px}
.verdict ul{margin-top:12px;padding-left:20px;max-width:76ch}
.verdict li{margin:3px 0}
.pass{color:var(--pass)}.fail{color:var(--fail)}.inconclusive{color:var(--open)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px 18px;margin:16px 2px 0}
.facts dt{color:var(--soft);font-size:12.5px}
.facts dd{margin:0;overflow-wrap:anywhere}

.overview{margin-top:18px}
.glance td{padding:6px 16px}.glance th{padding-top:9px}
.glance td:first-child{font-weight:550}.glance td:last-child,.glance th:last-child{text-align:right}
.glance a{color:inherit;text-decoration-color:var(--line);text-underline-offset:3px}

.chip{display:inline-block;white-space:nowrap;font-size:12.5px;font-weight:600;line-height:1;padding:4px 8px;border-radius:99px}
.chip.pass{background:var(--pass-bg)}.chip.fail{background:var(--fail-bg)}.chip.inconclusive{background:var(--open-bg)}
.chip.plain{background:var(--faint);color:var(--soft);font-weight:500}

.gate{margin-top:10px;overflow:hidden}
.gate>header{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 10px;padding:11px 16px;border-bottom:1px solid var(--line)}
.gate>header .chip{margin-left:auto}
.gate>header code{color:var(--soft)}
.rule{display:grid;grid-template-columns:150px 122px 92px 1fr 236px 100px;gap:2px 14px;align-items:center;padding:9px 16px}
.rule+.rule{border-top:1px solid var(--faint)}
.rule.head{color:var(--soft);font-size:12.5px;padding:10px 17px 0;border:0}
.rule .words{grid-column:1/-1;color:var(--soft);font-size:13px}
.rule .alarm{grid-column:1/-1;color:var(--open);font-size:13px}
.rule .side{justify-self:end}
.tag{display:none}

svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font:10.5px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;fill:var(--soft)}
svg.bar{max-width:250px}
.bar text{font-size:10px}
.allowed{fill:var(--allowed)}
.axis,.grid{stroke:var(--line);stroke-width:1}
.limit{stroke:var(--limit);stroke-width:1.5;stroke-dasharray:3 2}
.interval{stroke:currentColor;stroke-width:4;stroke-opacity:.45}
.cap{stroke:currentColor;stroke-width:1.5}
.dot{fill:currentColor}
.pip{fill:var(--pass);fill-opacity:.8}
.pip-bad{stroke:var(--fail);stroke-width:2;fill:none}
.curve{fill:none;stroke:var(--ours);stroke-width:1.75}.curve-dot{fill:var(--ours)}
.ecdf{fill:none;stroke-width:2;stroke-linejoin:round}
.ecdf.candidate{stroke:var(--ours)}
.ecdf.baseline{stroke:var(--theirs);stroke-dasharray:5 3}

.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(280px,1fr));gap:12px}
@media screen and (min-width:821px){.plots.small-ones{grid-template-columns:repeat(4,minmax(0,1fr))}}
.more .plots{margin-top:10px}
figure{padding:14px 16px;min-width:0}
figure h3{margin-bottom:8px}
figcaption{color:var(--soft);font-size:13px;margin-top:8px}
figcaption .key{display:block;color:var(--ink)}
.key::before{content:"";display:inline-block;width:22px;vertical-align:middle;margin-right:7px;border-top:2.5px solid var(--ours)}
.key.baseline::before{border-top:2.5px dashed var(--theirs)}
.key.to::before{border-top:1.5px dashed var(--limit)}

.case{margin-top:10px;padding:13px 16px}
.case>header{display:flex;flex-wrap:wrap;gap:4px 10px;align-items:baseline}
.case .why{margin-top:6px;overflow-wrap:anywhere}
.case .prompt{margin-top:6px;padding-left:11px;border-left:3px solid var(--line);overflow-wrap:anywhere;white-space:pre-wrap;
max-height:9em;overflow:auto}
.pair{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:12px;margin-top:10px}
.said>div:first-child{display:flex;gap:8px;align-items:baseline;justify-content:space-between;font-size:12.5px;color:var(--soft);margin-bottom:4px}
.said pre{margin:0;padding:9px 11px;background:var(--faint);border-radius:7px;white-space:pre-wrap;overflow-wrap:anywhere;
max-height:15.5em;overflow:auto;font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
.said pre:focus-visible{outline:2px solid var(--ours)}
h3.said-in{margin-top:22px}
.more{margin-top:10px;font-size:13px;color:var(--soft);overflow-wrap:anywhere}
summary{cursor:pointer}

table{border-collapse:collapse;width:100%}
th{text-align:left;font-weight:500;color:var(--soft);font-size:12.5px}
th,td{padding:8px 16px;vertical-align:top;border-bottom:1px solid var(--faint)}
tr:last-child td{border-bottom:0}
.bound{display:grid;grid-template-columns:minmax(120px,170px) minmax(0,1fr);padding:6px 16px}
.bound>*{padding:7px 0;border-bottom:1px solid var(--faint);margin:0}
.bound>:nth-last-child(-n+2){border-bottom:0}
.bound dt{color:var(--soft)}
.bound pre{margin:6px 0 0;white-space:pre-wrap;overflow-wrap:anywhere}
footer{margin-top:44px;color:var(--soft);font-size:13px;max-width:76ch;overflow-wrap:anywhere}
footer pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--faint);padding:10px 12px;border-radius:7px;color:var(--ink)}

@media screen and (max-width:820px){
.rule{grid-template-columns:repeat(3,minmax(0,1fr));align-items:start;padding:11px 16px}
.rule.head{display:none}
.rule .name{font-weight:600;grid-column:1/3}
.rule .side{grid-column:3;grid-row:1}
.rule .draw{grid-column:1/-1;margin-top:6px}
.rule .draw:empty{display:none}
.rule .drop{display:none}
.tag{display:block;color:var(--soft);font-size:12px}
}
@media screen and (max-width:560px){
main{padding:16px 12px 48px}
h1{font-size:21px}
.verdict{padding:18px 16px}
.pair{grid-template-columns:minmax(0,1fr)}
.bound{grid-template-columns:minmax(0,1fr)}
.bound dt{padding-bottom:0;border:0}.bound dd{padding-top:0}
th,td,.glance td{padding:7px 8px}
th:first-child,td:first-child{padding-left:12px}
.glance{font-size:13.5px}.glance .w{display:none}
table.stack thead{display:none}
table.stack tr{display:block;padding:8px 0;border-bottom:1px solid var(--faint)}
table.stack tr:last-child{border-bottom:0}
table.stack td{display:block;border:0;padding:2px 16px}
}
@page{margin:14mm}
@media print{
body{font-size:11px}
main{max-width:none;padding:0}
h1{font-size:19px}h2{font-size:15px;margin-top:26px}h3{font-size:12.5px}
.soft,.small,.lead,figcaption,code,pre,.mono,.chip,.rule .words,.rule .alarm{font-size:10px}
.rule{grid-template-columns:108px 92px 84px 1fr 176px 80px;gap:1px 10px;padding:6px 12px}
.case .prompt{max-height:none}
.said pre{max-height:none;overflow:visible;font-size:10.5px;padding:6px 8px}
.case,.gate>header{padding:8px 12px}
th,td,.glance td{padding:4px 12px}
figure,.verdict,.rule,tr,.case>header,.case .prompt,.case .why{break-inside:avoid}
h2,h3,.lead,.rule.head,.gate>header,.case>header,.case .prompt{break-after:avoid}
.card:not(.verdict){border-color:#ccc}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""
)
