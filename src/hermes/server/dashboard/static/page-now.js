/** The page Now: running turns, approvals that wait, today's cost, platforms, servers, failures. */
import { useEffect } from "./vendor-preact-hooks.js";
import { conversation, get, newId, post, send, toast, useTopic } from "./data.js";
import { clock, Command, html, money, Pending, revealed, State, timeAgo, useClock, useRequest } from "./ui.js";
import { T } from "./text.js";

function act(path, body, again) {
  post(path, body).then(again, error => { toast(error.message); again(); });
}

function Running({ rows, again }) {
  if (!rows.length) return html`<p class="dim">${T.nothingRuns}</p>`;
  return html`<div class="scroll-x"><table><thead><tr><th>${T.columns.session}</th><th class="wide">${T.columns.where}</th><th>${T.columns.doing}</th><th class="num wide">${T.columns.for}</th><th class="num wide">${T.columns.cost}</th><th><span class="hidden">${T.stop}</span></th></tr></thead>
    <tbody>${rows.map(row => html`<tr key=${row.session}><td><a href=${`#/c/${row.session}`}>${row.title || T.untitled}</a></td><td class="wide">${row.source}</td><td class="dim">${revealed(row.doing)}</td><td class="num wide">${clock(row.seconds)}</td><td class="num wide">${money(row.cost_usd)}</td>
      <td><div class="row"><button class="danger" onClick=${() => act(`api/sessions/${row.session}/stop`, {}, again)}>${T.stop}</button></div></td></tr>`)}</tbody></table></div>`;
}

function Waiting({ rows, again }) {
  useClock(1000);
  const answer = (row, choice) => act(`api/sessions/${row.session}/approvals/${row.approval.id}`, { choice, digest: row.approval.digest }, again);
  return html`<section class=${`card ${rows.length ? "ask" : ""}`} aria-label=${T.waitingForYou}><h2>${T.waitingForYou}</h2>${!rows.length && html`<p class="dim">${T.nothingWaits}</p>`}
    ${rows.map(row => html`<div key=${row.approval.id}><p><a href=${`#/c/${row.session}`}>${row.title || T.untitled}</a> ${T.wantsToRun}</p>
      <${Command} text=${row.approval.command || `${row.approval.tool} ${row.approval.arguments}`} />
      <p class="dim reason">${row.approval.reason}${/[.!?]$/.test(row.approval.reason) ? "" : "."}</p>
      <div class="row wrap"><button class="primary" onClick=${() => answer(row, "once")}>${T.once}</button><button onClick=${() => answer(row, "deny")}>${T.deny}</button>
        <span class="space"></span><span class="dim" role="timer">${T.deniedIn(clock(row.approval.expires_at - Date.now() / 1000))}</span></div></div>`)}</section>`;
}

const PLATFORM_KINDS = { connected: "done", connecting: "running", retrying: "warn", fatal: "failed" };

function Platforms() {
  const found = useRequest(() => get("api/platforms").catch(() => ({ data: [] })), []);
  const rows = found.data ? found.data.data.filter(row => row.enabled) : [];
  if (!rows.length) return null;
  return html`<section class="card"><h2>${T.platforms}</h2>${rows.map(row => html`<div class="fact"><span><${State} kind=${PLATFORM_KINDS[row.state] || "idle"} label=${row.state} /> ${row.name}</span><span class=${row.error_message ? "bad" : "dim"}>${row.error_message || row.state}</span></div>`)}</section>`;
}

const RANK = { failed: 0, note: 1, ok: 2 };
const CHECK_KINDS = { failed: "failed", note: "warn", ok: "done" };
const SHOWN = ["sandbox", "sessions", "model", "mcp", "schedule"];

/** What the checks found: first what is wrong, then what most depends on. */
function Health() {
  const found = useRequest(() => post("api/doctor"), []);
  const rows = found.data ? found.data.data.filter(row => row.state !== "ok" || SHOWN.some(name => row.name.startsWith(name))) : [];
  rows.sort((a, b) => RANK[a.state] - RANK[b.state]);
  return html`<section class="card"><h2>${T.pages.health}</h2><${Pending} of=${found}>${rows.slice(0, 6).map(row =>
    html`<div class="fact" key=${row.name}><span class="nowrap"><${State} kind=${CHECK_KINDS[row.state]} label=${T.checkStates[row.state]} /> ${row.name}</span><span class="dim ellipsis" title=${row.text}>${revealed(row.text)}</span></div>`)}
    <div><a class="button" href="#/health">${T.details}</a></div><//></section>`;
}

function Today({ today }) {
  const share = today.input ? `, ${Math.round(100 * today.cache_read / today.input)} % ${T.fromCache}` : "";
  return html`<section class="card"><h2>${T.todayTitle}</h2><p class="big">${money(today.cost_usd)}</p>
    <p class="dim">${today.daily_usd ? `${T.of} ${money(today.daily_usd)}, ` : ""}${T.calls(today.calls)}${share}</p>
    ${today.daily_usd > 0 && html`<progress class="bar" max="100" value=${Math.min(100, 100 * today.cost_usd / today.daily_usd)} aria-label=${T.todayTitle}></progress>`}</section>`;
}

function Failures({ rows }) {
  if (!rows.length) return html`<p class="dim">${T.noFailures}</p>`;
  const goOn = row => send(conversation(row.id), { id: newId(), text: T.goOnText, uploads: [], busy: "queue" }).then(() => { location.hash = `#/c/${row.id}`; }, error => toast(error.message));
  return html`<div class="scroll-x"><table><thead><tr><th>${T.columns.when}</th><th>${T.columns.session}</th><th>${T.columns.state}</th><th>${T.columns.kept}</th><th><span class="hidden">${T.goOn}</span></th></tr></thead>
    <tbody>${rows.map(row => html`<tr key=${row.id}><td class="dim">${timeAgo(row.updated_at)}</td><td><a href=${`#/c/${row.id}`}>${row.title || T.untitled}</a></td><td>${row.state}</td><td class="dim">${T.keptMessages(row.message_count)}</td>
      <td><div class="row"><button aria-label=${`${T.goOn}: ${row.title || T.untitled}`} onClick=${() => goOn(row)}>${T.goOn}</button></div></td></tr>`)}</tbody></table></div>`;
}

export function Page() {
  useTopic("sessions");
  const found = useRequest(() => get("api/overview"), []);
  useEffect(() => {
    const timer = setInterval(found.again, 2000);
    return () => clearInterval(timer);
  }, []);
  const data = found.data;
  return html`<${Pending} of=${found}>${data && html`<div class="grid main-grid"><section class="card" aria-label=${T.nowRunning}><h2>${T.nowRunning}</h2><${Running} rows=${data.running} again=${found.again} /></section>
    <${Waiting} rows=${data.waiting} again=${found.again} /></div>
    <div class="grid"><${Today} today=${data.today} /><${Platforms} />
    <section class="card"><h2>${T.servers}</h2>${data.servers.map(server => html`<div class="fact"><span><${State} kind="done" label=${T.running} /> ${server.kind}</span><span class="dim">${server.address || server.pid}</span></div>`)}
      <div class="fact dim"><span>Hermes</span><span>${data.version}</span></div></section><${Health} /></div>
    <section class="card" aria-label=${T.lastFailures}><h2>${T.lastFailures}</h2><${Failures} rows=${data.failures} /></section>`}<//>`;
}
