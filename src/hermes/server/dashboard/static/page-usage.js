/** The page Usage: cost and tokens per day, and split by model, purpose, person, tool or session. */
import { useState } from "./vendor-preact-hooks.js";
import { get } from "./data.js";
import { count, html, money, Pending, Segments, useRequest } from "./ui.js";
import { T } from "./text.js";

const WIDTH = 900;
const HEIGHT = 220;

function Chart({ days, cap }) {
  const most = Math.max(cap || 0, ...days.map(day => day.cost_usd), 0.000001);
  const step = WIDTH / Math.max(days.length, 1);
  const y = value => HEIGHT - 24 - (HEIGHT - 40) * value / most;
  return html`<svg class="chart" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${T.costPerDay}>
    ${[0, 0.5, 1].map(share => html`<line class="grid-line" x1="0" x2=${WIDTH} y1=${y(most * share)} y2=${y(most * share)} />`)}
    ${days.map((day, n) => html`<rect class="c0" x=${n * step + step * 0.15} width=${step * 0.7} y=${y(day.cost_usd)} height=${HEIGHT - 24 - y(day.cost_usd)}><title>${`${day.key}: ${money(day.cost_usd)}`}</title></rect>`)}
    ${cap ? html`<line class="cap" x1="0" x2=${WIDTH} y1=${y(cap)} y2=${y(cap)} /><text x=${WIDTH - 90} y=${y(cap) - 4}>${T.cap} ${money(cap)}</text>` : null}
    ${days.map((day, n) => n % Math.ceil(days.length / 6) === 0 && html`<text x=${n * step} y=${HEIGHT - 6}>${day.key}</text>`)}</svg>`;
}

function Rows({ rows, head }) {
  const { columns } = T;
  return html`<div class="scroll-x" tabindex="0" role="region" aria-label=${head}><table><thead><tr><th>${head}</th><th class="num">${columns.calls}</th><th class="num">${columns.in}</th><th class="num">${columns.cached}</th><th class="num">${columns.out}</th><th class="num">${columns.cost}</th></tr></thead>
    <tbody>${rows.map(row => html`<tr><td>${row.key || "–"}</td><td class="num">${count(row.calls)}</td><td class="num">${count(row.input)}</td><td class="num">${row.input ? Math.round(100 * row.cache_read / row.input) : 0} %</td><td class="num">${count(row.output)}</td><td class="num">${money(row.cost_usd)}</td></tr>`)}</tbody></table></div>`;
}

function saveCsv(rows) {
  const names = ["key", "calls", "failed", "input", "cache_read", "output", "cost_usd"];
  const safe = value => `"${String(value).replace(/^[=+@-]/, "'$&").replaceAll('"', '""')}"`;
  const text = [names.join(","), ...rows.map(row => names.map(name => safe(row[name])).join(","))].join("\r\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = "usage.csv";
  link.click();
}

export function Page() {
  const [days, setDays] = useState("30");
  const [by, setBy] = useState("model");
  const found = useRequest(() => get(`api/usage?by=${by}&days=${days}`), [by, days]);
  const { data } = found;
  const caps = data ? Object.entries(data.budget).filter(([, cap]) => cap !== null) : [];
  return html`<div class="row wrap"><${Segments} label=${T.period} options=${T.daysOption} value=${days} onChange=${setDays} />
    <${Segments} label=${T.split} options=${T.usageBy} value=${by} onChange=${setBy} /><span class="space"></span>
    ${data && html`<button onClick=${() => saveCsv(data.groups)}>${T.csv}</button>`}</div>
    <${Pending} of=${found}>${data && html`<section class="card"><h2>${T.costPerDay}</h2>${data.days.length ? html`<${Chart} days=${data.days} cap=${data.budget.daily_usd} />` : html`<p class="dim">${T.noUsage}</p>`}</section>
      <div class="grid"><section class="card"><h2>${T.cost}</h2><p class="big">${money(data.total.cost_usd)}</p></section>
        <section class="card"><h2>${T.tokensInOut}</h2><p class="big">${count(data.total.input)} / ${count(data.total.output)}</p></section>
        <section class="card"><h2>${T.columns.calls}</h2><p class="big">${count(data.total.calls)}</p><p class="dim">${data.total.failed} ${T.columns.failed}</p></section>
        <section class="card"><h2>${T.budgets}</h2>${caps.length ? caps.map(([name, cap]) => html`<div class="fact"><span>${name.replace("_", " ")}</span><span>${name.endsWith("usd") ? money(cap) : count(cap)}</span></div>`) : html`<p class="dim">${T.noBudget}</p>`}</section></div>
      <section class="card"><h2>${T.usageBy[by]}</h2><${Rows} rows=${data.groups} head=${T.usageBy[by]} /></section>
      <section class="card"><h2>${T.costPerDay}</h2><${Rows} rows=${[...data.days].reverse()} head=${T.columns.when} /></section>`}<//>`;
}
