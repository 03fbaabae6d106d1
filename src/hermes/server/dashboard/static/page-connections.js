/** The page Connections: messengers, the people let in, MCP servers with changed tools, plugins. */
import { useState } from "./vendor-preact-hooks.js";
import { get, post, toast, useNews } from "./data.js";
import { Dialog, html, Pending, revealed, State, timeAgo, useRequest } from "./ui.js";
import { Bundle } from "./bundle.js";
import { T } from "./text.js";

/** Sends a verb, says what came of it, and loads the list again. */
function useVerbs(path, again) {
  return body => post(path, body).then(found => {
    if (found.lines && found.lines.length) toast(found.lines.join(" "));
    again();
    return found;
  }, error => { toast(error.message); again(); return null; });
}

const KINDS = { ok: "done", connected: "done", loaded: "done", changed: "warn", disabled: "idle", off: "idle", stopped: "idle", "not started": "idle" };
const kindOf = state => KINDS[state] || (/^(failed|fatal|error|revoked)/.test(state) ? "failed" : "warn");

function Card({ title, of, empty, help, children, foot }) {
  return html`<section class="card" aria-label=${title}><h2>${title}</h2>${help && html`<p class="dim">${help}</p>`}<${Pending} of=${of}>${of.data && (of.data.data.length ? html`<ul class="list">${children}</ul>` : html`<p class="dim">${empty}</p>`)}<//>${foot}</section>`;
}

function Platforms({ found }) {
  const gateway = found.data && found.data.gateway;
  const foot = gateway ? html`<p class="dim">${T.gatewayState(gateway.state)}</p>` : html`<p class="dim">${T.noGateway}</p>`;
  return html`<${Card} title=${T.platforms} of=${found} empty=${T.noPlatforms} foot=${foot}>${found.data && found.data.data.map(row =>
    html`<li key=${row.name} class="fact"><span><${State} kind=${row.enabled ? kindOf(row.state) : "idle"} label=${row.state || T.off} /> ${row.name}</span>
      <span class=${row.error_message || row.problem ? "bad" : "dim"}>${row.error_message || row.problem || (row.enabled ? row.state : T.off)}</span></li>`)}<//>`;
}

function People({ found }) {
  const change = useVerbs("api/pairing", found.again);
  const approve = event => {
    event.preventDefault();
    const { platform, code } = event.target.elements;
    change({ verb: "approve", platform: platform.value.trim(), code: code.value.trim() }).then(done => { if (done) code.value = ""; });
  };
  const form = html`<form class="row wrap" onSubmit=${approve}><input name="platform" aria-label=${T.platform} placeholder=${T.platform} required /><input name="code" aria-label=${T.pairingCode} placeholder=${T.pairingCode} required /><button>${T.letIn}</button></form>`;
  return html`<${Card} title=${T.people} help=${T.pairingHelp} of=${found} empty=${T.nobody} foot=${form}>${found.data && found.data.data.map(row =>
    html`<li key=${`${row.platform} ${row.user}`} class="row"><span><${State} kind=${row.state === "waiting" ? "warn" : "done"} label=${row.state} /> ${revealed(row.name || row.user || "–")}
      <span class="dim"> ${row.platform}${row.name && row.user ? `, ${revealed(row.user)}` : ""}, ${row.state}${row.created ? `, ${timeAgo(row.created)}` : ""}</span></span><span class="space"></span>
      ${row.state === "paired" && html`<button class="danger" aria-label=${`${T.revoke}: ${row.name || row.user}`} onClick=${() => change({ verb: "revoke", platform: row.platform, user: row.user })}>${T.revoke}</button>`}</li>`)}<//>`;
}

/** What a server offers that nobody has agreed to, with its words before. */
function Review({ name, changes, onAgree, onClose }) {
  return html`<${Dialog} title=${T.reviewTools(name)} onClose=${onClose}>${changes.map(tool => html`<section key=${tool.name}><h3>${tool.name}${tool.is_new ? ` (${T.new})` : ""}</h3>
    ${tool.before !== null && html`<pre class="before" tabindex="0">${tool.before}</pre>`}<pre tabindex="0">${tool.description}</pre>${tool.parameters_changed && html`<p class="dim">${T.parametersChanged}</p>`}</section>`)}
    ${!changes.length && html`<p class="dim">${T.nothingChanged}</p>`}
    <div class="row"><span class="space"></span><button onClick=${onClose}>${T.cancel}</button>${changes.length > 0 && html`<button class="primary" onClick=${onAgree}>${T.agree}</button>`}</div><//>`;
}

function Server({ row, change }) {
  const [trial, setTrial] = useState("");
  const [review, setReview] = useState(null);
  const run = verb => change({ verb, name: row.name });
  const test = () => { setTrial(T.testing); run("test").then(found => setTrial(found ? describeTrial(found) : "")); };
  const agree = () => { setReview(null); run("agree"); };
  return html`<li class="entry"><div class="row wrap"><span><${State} kind=${kindOf(row.state)} label=${row.state} /> <b>${row.name}</b></span>
      <span class="dim ellipsis">${row.url || row.command || ""}${row.origin ? `, ${row.origin}` : ""}</span><span class="space"></span>
      <button class="quiet" onClick=${test}>${T.test}</button>
      ${row.state === "changed" && html`<button class="primary" onClick=${() => run("review").then(found => found && setReview(found.changes))}>${T.reviewChanges}</button>`}
      <button class="quiet" onClick=${() => run(row.state === "disabled" ? "enable" : "disable")}>${row.state === "disabled" ? T.enable : T.disable}</button>
      <button class="quiet bad" aria-label=${`${T.remove}: ${row.name}`} onClick=${() => run("remove")}>${T.remove}</button></div>
    <p class="dim">${trial || row.state}${row.tools !== null && !trial ? `, ${T.toolCount(row.tools)}` : ""}</p>
    ${review && html`<${Review} name=${row.name} changes=${review} onAgree=${agree} onClose=${() => setReview(null)} />`}</li>`;
}

const describeTrial = found => found.state === "ok" ? `${T.works}, ${T.toolCount(found.tools)}, ${found.milliseconds} ms` : found.note || found.state;

function Servers({ found }) {
  const change = useVerbs("api/mcp", found.again);
  const add = event => {
    event.preventDefault();
    const { name, target } = event.target.elements;
    const place = target.value.trim();
    const body = /^https?:/.test(place) ? { url: place } : { command: place.split(/\s+/) };
    change({ verb: "add", name: name.value.trim(), ...body }).then(done => { if (done) event.target.reset(); });
  };
  const form = html`<form class="row wrap" onSubmit=${add}><input name="name" aria-label=${T.serverName} placeholder=${T.serverName} required /><input name="target" aria-label=${T.serverTarget} placeholder=${T.serverTarget} required /><button>${T.add}</button></form>`;
  return html`<${Card} title=${T.mcpServers} help=${T.mcpHelp} of=${found} empty=${T.noServers} foot=${form}>${found.data && found.data.data.map(row => html`<${Server} key=${row.name} row=${row} change=${change} />`)}<//>`;
}

function Plugins({ found }) {
  const change = useVerbs("api/plugins", found.again);
  const foot = html`<${Bundle} path="api/plugins" label=${T.pluginSource} again=${found.again} />`;
  return html`<${Card} title=${T.plugins} help=${T.pluginsHelp} of=${found} empty=${T.noPlugins} foot=${foot}>${found.data && found.data.data.map(row => {
    const isOff = row.state === "off" || row.state === "disabled";
    return html`<li key=${row.name} class="entry"><div class="row wrap"><span><${State} kind=${kindOf(row.state)} label=${row.state} /> <b>${row.name}</b> <span class="dim">${row.version}</span></span><span class="space"></span>
      <button class="quiet" onClick=${() => change({ verb: isOff ? "enable" : "disable", name: row.name })}>${isOff ? T.enable : T.disable}</button>
      <button class="quiet bad" aria-label=${`${T.remove}: ${row.name}`} onClick=${() => change({ verb: "remove", name: row.name })}>${T.remove}</button></div>
      <p class="dim">${row.state}${row.description ? `, ${revealed(row.description)}` : ""}${row.origin ? `, ${row.origin}` : ""}</p></li>`;
  })}<//>`;
}

export function Page() {
  const platforms = useRequest(() => get("api/platforms"), []);
  useNews("platform", platforms.again);
  const people = useRequest(() => get("api/pairing"), []);
  const servers = useRequest(() => get("api/mcp"), []);
  const plugins = useRequest(() => get("api/plugins"), []);
  const hasMessengers = !(platforms.error && platforms.error.status === 404);
  return html`${hasMessengers && html`<div class="grid wide-grid"><${Platforms} found=${platforms} /><${People} found=${people} /></div>`}
    <${Servers} found=${servers} /><${Plugins} found=${plugins} />`;
}
