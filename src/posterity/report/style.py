"""How the page looks, and the little that moves on it."""

from posterity.report.canvas import SERIES, SERIES_DARK


def _series(colors: tuple[str, ...]) -> str:
    return "".join(f"--series-{index}:{value};" for index, value in enumerate(colors))


STYLE = f"""
:root{{color-scheme:light;--paper:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#59626d;--faint:#d8dce2;
--best:#17704a;{_series(SERIES)}}}
@media (prefers-color-scheme:dark){{:root{{color-scheme:dark;--paper:#14171b;--card:#1c2026;--ink:#e8eaed;
--soft:#a8b0ba;--faint:#3a414b;--best:#58c896;{_series(SERIES_DARK)}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
overflow-wrap:anywhere}}
main{{max-width:68rem;margin:0 auto;padding:2rem 1rem 4rem}}
h1{{font-size:1.8rem;line-height:1.2;margin:.2rem 0}}
h2{{font-size:1.2rem;margin:0 0 .6rem}}
.kind{{color:var(--soft);margin:0;letter-spacing:.04em;font-size:.9rem}}
.facts{{color:var(--soft);margin:.2rem 0 1.5rem}}
section{{background:var(--card);border:1px solid var(--faint);border-radius:12px;padding:1.2rem;
margin:1rem 0}}
.verdict p{{font-size:1.08rem;margin:.35rem 0;max-width:46rem}}
.scroll{{overflow-x:auto}}
table{{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}}
th,td{{padding:.42rem .55rem;font-size:.95rem;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--faint)}}
th:first-child,td:first-child{{text-align:left}}
thead th{{color:var(--soft);font-weight:600;font-size:.88rem;white-space:normal;vertical-align:bottom;
overflow-wrap:normal}}
thead button{{all:unset;cursor:pointer;border-radius:4px}}
thead button:focus-visible{{outline:2px solid currentColor;outline-offset:2px}}
thead th[aria-sort] button::after{{content:" ▲";font-size:.8em}}
thead th[aria-sort=descending] button::after{{content:" ▼"}}
tbody th{{font-weight:600}}
tbody tr:last-child>*{{border-bottom:0}}
small{{font-size:.8em;font-weight:400;color:var(--soft)}}
.best{{font-weight:700;color:var(--best)}}
.swatch{{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.5em}}
figure{{margin:0}}
.panels{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(17rem,100%),1fr));gap:.8rem}}
.panels.large{{grid-template-columns:minmax(0,40rem)}}
.panels.medium{{grid-template-columns:repeat(auto-fit,minmax(min(22rem,100%),1fr))}}
svg{{display:block;width:100%;height:auto;color:var(--ink)}}
svg text{{font-family:inherit!important}}
figcaption,.note{{color:var(--soft);max-width:46rem;margin:.8rem 0 0;font-size:.95rem}}
dl{{display:grid;max-width:60rem;margin:0;font-size:.95rem;
grid-template-columns:minmax(6rem,auto) 1fr;gap:.3rem 1.2rem}}
dt{{color:var(--soft)}}
dd{{margin:0}}
pre{{margin:0;overflow-x:auto}}
code{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.92em}}
.certainty{{width:100%;accent-color:var(--series-0);min-height:1.8rem}}
.ends{{display:flex;justify-content:space-between;color:var(--soft);font-size:.9rem;margin-bottom:1rem}}
.items{{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(18rem,100%),1fr))}}
.items.one{{grid-template-columns:1fr;min-height:19rem}}
.item{{display:grid;gap:.4rem 1.5rem;grid-template-columns:minmax(0,16rem) minmax(0,1fr);align-content:start}}
.item[hidden]{{display:none}}
.item img{{width:100%;image-rendering:pixelated;border:1px solid var(--faint);border-radius:6px}}
.item .wide{{grid-column:1/-1}}
.item p{{margin:0 0 .4rem}}
.item dl{{grid-template-columns:minmax(0,auto) minmax(0,1fr);gap:.1rem 1rem;align-content:start}}
.bar{{display:grid;grid-template-columns:minmax(0,7rem) 1fr 4rem;gap:.6rem;align-items:center;font-size:.92rem;
font-variant-numeric:tabular-nums}}
.bar span{{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}}
.bar i{{display:block;height:.7em;min-width:1px;border-radius:3px;background:var(--series-0)}}
.bar.truth span{{font-weight:700}}
.bar.truth i{{background:var(--series-2)}}
.bar data{{text-align:right}}
@media (max-width:34rem){{.item{{grid-template-columns:1fr}}.items.one{{min-height:0}}}}
@media print{{section{{break-inside:avoid}}}}
"""


SCRIPT = """
for (const button of document.querySelectorAll("thead button")) button.addEventListener("click", () => {
  const head = button.closest("th"), body = button.closest("table").tBodies[0], place = head.cellIndex;
  const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  const value = row => row.cells[place].dataset.value;
  const rows = [...body.rows].sort((a, b) => {
    const x = value(a), y = value(b);
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (place ? x - y : x.localeCompare(y));
  });
  body.append(...rows);
});
const slider = document.getElementById("certainty");
if (slider) {
  const items = [...document.querySelectorAll(".item")];
  const show = () => {
    items.forEach((item, place) => { item.hidden = place !== +slider.value; });
    slider.setAttribute("aria-valuetext", items[+slider.value].dataset.words);
  };
  slider.closest("section").querySelector(".items").classList.add("one");
  slider.hidden = slider.labels[0].hidden = slider.nextElementSibling.hidden = false;
  slider.addEventListener("input", show);
  show();
}
"""
"""Sorts a table by the column whose heading is pressed, and shows the input that the slider points at.

It is the only script that the page lets run. Without it, tables stay as they are and all inputs are shown.
"""
