/** Markdown as virtual DOM: tokens of `marked` become elements by a table of our own. */
import { h } from "./vendor-preact.js";
import { useEffect, useState } from "./vendor-preact-hooks.js";
import { Lexer } from "./vendor-marked.js";
import { html } from "./ui.js";
import { T } from "./text.js";

const LONGEST_HIGHLIGHTED = 100000;
const SAFE = /^(https?:|mailto:|#)/i;
let highlighter = null;
let highlighting = null;

/** @param {string} href */
function safeLink(href) {
  return SAFE.test(href.trim()) ? href.trim() : null;
}

function unescaped(text) {
  return text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name) => ({ amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" })[name]);
}

function link(token) {
  const href = safeLink(token.href || "");
  const inside = token.tokens && token.tokens.length ? inline(token.tokens) : unescaped(token.text || token.href);
  if (!href) return h("span", null, inside, token.href ? ` (${token.href})` : "");
  return h("a", { href, rel: "noopener noreferrer", target: "_blank" }, inside);
}

const INLINE = {
  text: token => token.tokens ? inline(token.tokens) : unescaped(token.text),
  escape: token => unescaped(token.text),
  strong: token => h("strong", null, inline(token.tokens)),
  em: token => h("em", null, inline(token.tokens)),
  del: token => h("del", null, inline(token.tokens)),
  codespan: token => h("code", null, unescaped(token.text)),
  br: () => h("br"),
  link,
  image: token => link({ ...token, tokens: null, text: token.text || token.href }),
  html: token => token.raw,
};

function inline(tokens) {
  return (tokens || []).map(token => (INLINE[token.type] || INLINE.html)(token));
}

function cell(kind, token) {
  return h(kind, { class: token.align ? `align-${token.align}` : undefined }, inline(token.tokens));
}

const BLOCKS = {
  space: () => null,
  hr: () => h("hr"),
  heading: token => h(`h${Math.min(6, token.depth + 2)}`, null, inline(token.tokens)),
  paragraph: token => h("p", null, inline(token.tokens)),
  text: token => h("p", null, token.tokens ? inline(token.tokens) : unescaped(token.text)),
  blockquote: token => h("blockquote", null, blocks(token.tokens)),
  code: token => h(Code, { text: token.text, language: (token.lang || "").split(/\s/)[0] }),
  list: token => h(token.ordered ? "ol" : "ul", token.ordered && token.start > 1 ? { start: token.start } : null,
    token.items.map(item => h("li", null, item.task ? h("input", { type: "checkbox", disabled: true, checked: item.checked, "aria-label": T.plan }) : null,
      item.loose ? blocks(item.tokens) : item.tokens.map(part => part.type === "text" ? INLINE.text(part) : block(part))))),
  table: token => h("div", { class: "table", tabIndex: 0, role: "region", "aria-label": T.table }, h("table", null,
    h("thead", null, h("tr", null, token.header.map(c => cell("th", c)))),
    h("tbody", null, token.rows.map(row => h("tr", null, row.map(c => cell("td", c))))))),
  html: token => h("p", { class: "raw" }, token.raw),
};

function block(token) {
  const make = BLOCKS[token.type];
  return make ? make(token) : h("p", null, token.raw);
}

function blocks(tokens) {
  return (tokens || []).map(block);
}

function loadHighlighter() {
  highlighting = highlighting || import("./vendor-highlight.js").then(module => { highlighter = module.default; });
  return highlighting;
}

function walk(node) {
  if (typeof node === "string") return node;
  const scope = node.scope ? `hl-${node.scope.split(".")[0]}` : undefined;
  return h("span", { class: scope }, node.children.map(walk));
}

/** A block of code, coloured when its language is known; `open`: it still grows. */
export function Code({ text, language, open }) {
  const [, render] = useState(0);
  const [copied, setCopied] = useState(false);
  const wanted = language && !open && text.length < LONGEST_HIGHLIGHTED;
  const isPlain = !highlighter; // it may be there by the time the effect runs
  useEffect(() => {
    if (wanted && isPlain) loadHighlighter().then(() => render(1), () => {});
  }, [wanted]);
  let inside = text;
  if (wanted && highlighter && highlighter.getLanguage(language)) {
    const found = highlighter.highlight(text, { language, ignoreIllegals: true });
    inside = found._emitter.rootNode.children.map(walk);
  }
  const copy = () => navigator.clipboard && navigator.clipboard.writeText(text).then(() => setCopied(true), () => {});
  return html`<div class="code"><div class="code-head"><span>${language || "text"}</span>
    <button class="quiet" onClick=${copy}>${copied ? T.copied : T.copy}</button></div>
    <pre tabindex="0" role="region" aria-label=${T.code}><code>${inside}</code></pre></div>`;
}

const parsed = new Map();
function lex(text) {
  let tokens = parsed.get(text);
  if (!tokens) {
    tokens = new Lexer({ gfm: true, breaks: true }).lex(text);
    if (parsed.size > 400) parsed.clear();
    parsed.set(text, tokens);
  }
  return tokens;
}

/** Where the last finished block ends: a blank line outside fences. */
function lastBreak(text) {
  let fence = "";
  let found = 0;
  let at = 0;
  for (const line of text.split("\n")) {
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line);
    if (mark && !fence) fence = mark[1][0];
    else if (mark && mark[1][0] === fence) fence = "";
    at += line.length + 1;
    if (!fence && !line.trim()) found = at;
  }
  return Math.min(found, text.length);
}

function Finished({ text }) {
  return blocks(lex(text));
}

/** @param {{text: string, open?: boolean}} props `open`: more text comes; only its end is parsed again */
export function Markdown({ text, open }) {
  if (!open) return h("div", { class: "prose" }, h(Finished, { text }));
  const cut = lastBreak(text);
  return h("div", { class: "prose" }, cut ? h(Finished, { text: text.slice(0, cut), key: "done" }) : null,
    blocks(new Lexer({ gfm: true, breaks: true }).lex(text.slice(cut))));
}
