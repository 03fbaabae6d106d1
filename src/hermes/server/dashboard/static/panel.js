/** The right panel of a conversation: plan, cost, context, outline. */
import { useTopic } from "./data.js";
import { count, html, money, State, useRequest } from "./ui.js";
import { loadOutline, showMessage } from "./log.js";
import { state } from "./data.js";
import { T } from "./text.js";

function Bar({ share, label }) {
  return html`<progress class="bar" max="100" value=${Math.min(100, Math.round(share * 100))} aria-label=${label}></progress>`;
}

export function Panel({ conv, onClose }) {
  useTopic(conv.id);
  const outline = useRequest(() => loadOutline(conv), [conv.id, conv.total]);
  const { todo, usage } = conv.live;
  const session = state.sessions.get(conv.id);
  return html`<aside class="panel" aria-label=${T.panel}>
    <button class="quiet panel-close" onClick=${onClose}>${T.close}</button>
    ${todo && todo.length > 0 && html`<section><h2>${T.plan}</h2><ul class="plan">${todo.map(item => html`<li class=${item.status || "pending"}>
      <${State} kind=${{ completed: "done", in_progress: "running" }[item.status] || "idle"} label=${item.status || "pending"} /> ${item.content}</li>`)}</ul></section>`}
    <section><h2>${T.cost}</h2>
      <div class="fact"><span>${T.conversation}</span><span>${money(session ? session.cost_usd : null)}</span></div>
      ${usage && usage.input > 0 && html`<div class="fact"><span>${T.lastCall}</span><span>${money(usage.cost_usd)}</span></div>
        <div class="fact"><span>${T.context}</span><span>${count(usage.input)}${usage.context_length ? ` of ${count(usage.context_length)}` : ""}</span></div>
        ${usage.context_length && html`<${Bar} share=${usage.input / usage.context_length} label=${T.context} />`}
        <div class="fact dim"><span>${T.fromCache}</span><span>${Math.round(100 * (usage.cached || 0) / usage.input)} %</span></div>`}</section>
    ${outline.data && outline.data.data.length > 1 && html`<section><h2>${T.outline}</h2><ul class="outline">${outline.data.data.map(row =>
      html`<li><button class="quiet ellipsis" onClick=${() => showMessage(conv, row.seq)}>${row.text || "…"}</button></li>`)}</ul></section>`}</aside>`;
}
