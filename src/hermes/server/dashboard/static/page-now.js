/** The page Now: running turns, approvals that wait, today's cost, servers, failures. */
import { useEffect } from "./vendor-preact-hooks.js";
import { get, post, toast, useTopic } from "./data.js";
import { html, money, Pending, revealed, State, timeAgo, useRequest } from "./ui.js";
import { T } from "./text.js";

function act(path, body, again) {
  post(path, body).then(again, error => { toast(error.message); again(); });
}

function Running({ rows, again }) {
  if (!rows.length) return html`<p class="dim">${T.nothingRuns}</p>`;
  return html`<div class="scroll-x"><table><thead><tr><th>${T.columns.session}</th><th>${T.columns.where}</th><th>${T.columns.doing}</th><th><span class="hidden">${T.stop}</span></th></tr></thead>
    <tbody>${rows.map(row => html`<tr key=${row.session}><td><a href=${`#/c/${row.session}`}>${row.title || T.untitled}</a></td><td>${row.source}</td><td class="dim">${row.doing}</td>
      <td><div class="row"><button class="danger" onClick=${() => act(`api/sessions/${row.session}/stop`, {}, again)}>${T.stop}</button></div></td></tr>`)}</tbody></table></div>`;
}

function Waiting({ rows, again }) {
  const answer = (row, choice) => act(`api/sessions/${row.session}/approvals/${row.approval.id}`, { choice, digest: row.approval.digest }, again);
  return html`<section class=${`card ${rows.length ? "ask" : ""}`}><h2>${T.waitingForYou}</h2>${!rows.length && html`<p class="dim">${T.nothingWaits}</p>`}
    ${rows.map(row => html`<div key=${row.approval.id}><p><a href=${`#/c/${row.session}`}>${row.title || T.untitled}</a> ${T.wantsToRun}</p>
      <pre class="command" tabindex="0">${revealed(row.approval.command || `${row.approval.tool} ${row.approval.arguments}`)}</pre>
      <div class="row wrap"><button class="primary" onClick=${() => answer(row, "once")}>${T.once}</button><button onClick=${() => answer(row, "deny")}>${T.deny}</button></div></div>`)}</section>`;
}

export function Page() {
  useTopic("sessions");
  const found = useRequest(() => get("api/overview"), []);
  useEffect(() => {
    const timer = setInterval(found.again, 2000);
    return () => clearInterval(timer);
  }, []);
  const data = found.data || {};
  return html`<${Pending} of=${found}>${found.data && html`<div class="grid"><section class="card"><h2>${T.nowRunning}</h2><${Running} rows=${data.running} again=${found.again} /></section>
    <${Waiting} rows=${data.waiting} again=${found.again} /></div>
    <div class="grid"><section class="card"><h2>${T.todayTitle}</h2><p class="big">${money(data.today.cost_usd)}</p>
      <p class="dim">${data.today.daily_usd ? `${T.of} ${money(data.today.daily_usd)}, ` : ""}${T.calls(data.today.calls)}${data.today.input ? `, ${Math.round(100 * data.today.cache_read / data.today.input)} % ${T.fromCache}` : ""}</p>
      ${data.today.daily_usd > 0 && html`<progress class="bar" max="100" value=${Math.min(100, 100 * data.today.cost_usd / data.today.daily_usd)} aria-label=${T.todayTitle}></progress>`}</section>
    <section class="card"><h2>${T.servers}</h2>${data.servers.map(server => html`<div class="fact"><span><${State} kind="done" label=${T.running} /> ${server.kind}</span><span class="dim">${server.address || server.pid}</span></div>`)}
      <div class="fact dim"><span>Hermes</span><span>${data.version}</span></div></section></div>
    <section class="card"><h2>${T.lastFailures}</h2>${data.failures.length ? html`<div class="scroll-x"><table><thead><tr><th>${T.columns.when}</th><th>${T.columns.session}</th><th>${T.columns.state}</th></tr></thead>
      <tbody>${data.failures.map(row => html`<tr><td class="dim">${timeAgo(row.updated_at)}</td><td><a href=${`#/c/${row.id}`}>${row.title || T.untitled}</a></td><td>${row.state}</td></tr>`)}</tbody></table></div>` : html`<p class="dim">${T.noFailures}</p>`}</section>`}<//>`;
}
