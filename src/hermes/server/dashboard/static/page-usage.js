/** The page Usage: cost and tokens per day, split by model, purpose, person or tool; caps; expensive sessions. */
import { useState } from "./vendor-preact-hooks.js";
import { get, state, useNews } from "./data.js";
import { count, html, money, Pending, Segments, useRequest } from "./ui.js";
import { T } from "./text.js";

const WIDTH = innerWidth < 720 ? 420 : 900; // so that its text can be read
const HEIGHT = 220;
const BOTTOM = 24;
const COLOURS = 5;

const MEASURES = {
  cost: { read: row => row.cost_usd, show: money, title: T.costPerDay },
  tokens: { read: row => row.input + row.output, show: count, title: T.tokensPerDay },
};

/** The keys with the highest cost, each with its colour; the others share the last one. */
function chooseColours(split, read) {
  const sums = new Map();
  for (const day of split) for (const part of day.parts) sums.set(part.key, (sums.get(part.key) || 0) + read(part));
  const names = [...sums].sort((a, b) => b[1] - a[1]).map(([key]) => key);
  return new Map(names.map((key, n) => [key, Math.min(n, COLOURS - 1)]));
}

function Chart({ days, split, cap, measure: { read, show, title } }) {
  const most = Math.max(cap || 0, ...days.map(read), 0.000001) * 1.05;
  const step = WIDTH / Math.max(days.length, 7);
  const y = value => HEIGHT - BOTTOM - (HEIGHT - 40) * value / most;
  const colours = chooseColours(split, read);
  const parts = new Map(split.map(day => [day.key, day.parts]));
  const bars = days.flatMap((day, n) => {
    let below = 0;
    return (parts.get(day.key) || [{ ...day, key: "" }]).map(part => {
      const top = y(below + read(part));
      const height = y(below) - top;
      below += read(part);
      return html`<rect class=${`c${colours.get(part.key) || 0}`} x=${n * step + step * 0.15} width=${step * 0.7} y=${top} height=${Math.max(0, height)}><title>${`${day.key}, ${part.key || "–"}: ${show(read(part))}`}</title></rect>`;
    });
  });
  const legend = [...colours].slice(0, COLOURS);
  return html`<div class="legend">${legend.map(([key, n]) => html`<span><i class=${`c${n}`}></i>${n === COLOURS - 1 && colours.size > COLOURS ? T.others : key || "–"}</span>`)}</div>
    <svg class="chart" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${title}>
    ${(cap ? [0, 0.5] : [0, 0.5, 1]).map(share => html`<line class="grid-line" x1="0" x2=${WIDTH} y1=${y(most * share)} y2=${y(most * share)} />`)}${bars}
    ${cap ? html`<line class="cap" x1="0" x2=${WIDTH} y1=${y(cap)} y2=${y(cap)} /><text class="cap-text" x=${WIDTH - 4} text-anchor="end" y=${y(cap) - 5}>${T.cap} ${show(cap)}</text>` : null}
    ${days.map((day, n) => n % Math.ceil(days.length / 6) === 0 && html`<text x=${n * step} y=${HEIGHT - 6}>${shortDay(day.key)}</text>`)}</svg>`;
}

function shortDay(key) {
  const date = new Date(`${key}T00:00`);
  return Number.isNaN(date.getTime()) ? key : date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

function Rows({ rows, head, link }) {
  const { columns } = T;
  return html`<div class="scroll-x" tabindex="0" role="region" aria-label=${head}><table><thead><tr><th>${head}</th><th class="num">${columns.calls}</th><th class="num">${columns.in}</th><th class="num">${columns.cached}</th><th class="num">${columns.out}</th><th class="num">${columns.cost}</th></tr></thead>
    <tbody>${rows.map(row => html`<tr key=${row.key}><td>${link ? html`<a href=${`#/c/${row.key}`}>${(state.sessions.get(row.key) || {}).title || row.key}</a>` : row.key || "–"}</td><td class="num">${count(row.calls)}</td><td class="num">${count(row.input)}</td><td class="num">${row.input ? Math.round(100 * row.cache_read / row.input) : 0} %</td><td class="num">${count(row.output)}</td><td class="num">${money(row.cost_usd)}</td></tr>`)}</tbody></table></div>`;
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

function Level({ level }) {
  const kind = level.cap.split("_")[0];
  const name = [T.capKinds[kind], kind === "session" ? (state.sessions.get(level.key) || {}).title || level.key : level.key].filter(Boolean).join(": ");
  const show = level.unit === "usd" ? money : count;
  return html`<div><div class="fact"><span class="ellipsis">${name}</span><span>${show(level.spent)} ${T.of} ${show(level.limit)}</span></div>
    <progress class=${`bar ${level.percent >= 90 ? "full" : ""}`} max="100" value=${Math.min(100, level.percent)} aria-label=${name}></progress></div>`;
}

function Budgets() {
  const found = useRequest(() => get("api/budget"), []);
  useNews("budget", found.again);
  const levels = found.data ? found.data.levels : [];
  const hasCaps = found.data && Object.values(found.data.caps).some(cap => cap !== null);
  return html`<section class="card"><h2>${T.budgets}</h2><${Pending} of=${found}>${hasCaps ? html`${levels.map(level => html`<${Level} key=${`${level.cap} ${level.key}`} level=${level} />`)}<p class="dim small">${T.capHelp}</p>` : html`<p class="dim">${T.noBudget}</p>`}
    <div><a class="button" href="#/settings/Budget">${T.changeCaps}</a></div><//></section>`;
}

function Totals({ total }) {
  const share = (part, whole) => whole ? `${(100 * part / whole).toFixed(1)} %` : "0 %";
  return html`<div class="grid"><section class="card"><h2>${T.cost}</h2><p class="big">${money(total.cost_usd)}</p>${total.unpriced > 0 && html`<p class="dim">${T.unpriced(total.unpriced)}</p>`}</section>
    <section class="card"><h2>${T.tokensInOut}</h2><p class="big">${count(total.input)} / ${count(total.output)}</p><p class="dim">${share(total.cache_read, total.input)} ${T.fromCache}</p></section>
    <section class="card"><h2>${T.columns.calls}</h2><p class="big">${count(total.calls)}</p><p class="dim">${share(total.failed, total.calls)} ${T.columns.failed}</p></section></div>`;
}

export function Page() {
  const [days, setDays] = useState("30");
  const [by, setBy] = useState("model");
  const [shown, setShown] = useState("cost");
  const measure = MEASURES[shown];
  const found = useRequest(() => get(`api/usage?by=${by}&split=${by}&days=${days}`), [by, days]);
  const costly = useRequest(() => get(`api/usage?by=session&days=${days}`), [days]);
  const { data } = found;
  return html`<div class="row wrap"><${Segments} label=${T.period} options=${T.daysOption} value=${days} onChange=${setDays} />
    <${Segments} label=${T.split} options=${T.usageBy} value=${by} onChange=${setBy} />
    <${Segments} label=${T.measure} options=${T.measures} value=${shown} onChange=${setShown} /><span class="space"></span>
    ${data && html`<button onClick=${() => saveCsv(data.groups)}>${T.csv}</button>`}</div>
    <${Pending} of=${found}>${data && html`<div class="grid chart-grid"><section class="card"><h2>${measure.title}</h2>${data.days.length ? html`<${Chart} days=${data.days} split=${data.split || []} measure=${measure} cap=${shown === "cost" ? data.budget.daily_usd : data.budget.daily_tokens} />` : html`<p class="dim">${T.noUsage}</p>`}</section><${Budgets} /></div>
      <${Totals} total=${data.total} />
      <section class="card"><h2>${T.usageBy[by]}</h2><${Rows} rows=${data.groups} head=${T.usageBy[by]} /></section>
      ${costly.data && costly.data.groups.length > 0 && html`<section class="card"><h2>${T.expensive}</h2><${Rows} rows=${costly.data.groups.filter(row => row.key).slice(0, 10)} head=${T.columns.session} link /></section>`}
      <details class="card"><summary>${T.asTable}</summary><${Rows} rows=${[...data.days].reverse()} head=${T.columns.when} /></details>`}<//>`;
}
