/** Installing a skill or a plugin: its files, what a scan finds and the difference are shown first. */
import { useState } from "./vendor-preact-hooks.js";
import { post, toast } from "./data.js";
import { count, Dialog, Diff, html } from "./ui.js";
import { T } from "./text.js";

/** What would be installed; nothing is, unless it is confirmed. */
export function Preview({ shown, onInstall, onClose }) {
  return html`<${Dialog} title=${T.installTitle(shown.name)} onClose=${onClose}><p class="dim">${shown.source}</p>
    ${shown.findings.length > 0 ? html`<div class=${shown.blocked ? "failure" : "card ask"} role="alert"><h3>${shown.blocked ? T.scanBlocked : T.scanFound}</h3><ul>${shown.findings.map(text => html`<li>${text}</li>`)}</ul></div>` : html`<p>${T.scanClean}</p>`}
    <ul>${shown.files.map(file => html`<li class="fact"><code class="ellipsis">${file.name}</code><span class="dim">${T.bytes(count(file.bytes))}</span></li>`)}</ul>
    ${shown.diff && html`<${Diff} lines=${shown.diff.split("\n")} />`}
    <div class="row"><span class="space"></span><button onClick=${onClose}>${onInstall ? T.cancel : T.close}</button>${onInstall && !shown.blocked && html`<button class="primary" onClick=${onInstall}>${T.install}</button>`}</div><//>`;
}

/** @param {{path: string, label: string, again: () => void}} props `path`: the route of skills or plugins */
export function Bundle({ path, label, again }) {
  const [asked, setAsked] = useState(null);
  const fail = error => { setAsked(null); toast(error.message); };
  const show = event => {
    event.preventDefault();
    const source = event.target.elements.source.value.trim();
    post(path, { verb: "install", source }).then(found => setAsked({ source, shown: found.preview }), fail);
  };
  const install = () => post(path, { verb: "install", source: asked.source, confirm: asked.shown.digest }).then(found => { setAsked(null); toast(found.lines.join(" ")); again(); }, fail);
  return html`<form class="row wrap" onSubmit=${show}><input name="source" aria-label=${label} placeholder=${label} required /><button>${T.look}</button></form>
    ${asked && html`<${Preview} shown=${asked.shown} onInstall=${install} onClose=${() => setAsked(null)} />`}`;
}
