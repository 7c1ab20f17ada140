// Keeps a page fresh in place: asks for it again and changes what differs, so that the scroll position, the
// focus, a selection and opened details stay. Rows are found again by their ids. A page works without this.
"use strict";

(() => {
  const every = Number(document.documentElement.dataset.refresh) * 1000;
  const state = document.getElementById("link-state");
  let [timer, busy, over, since] = [null, false, false, null];
  if (!every || !state) return;

  function update(old, fresh) {
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      // Whether details are open is the reader's choice.
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    updateChildren(old, fresh);
  }

  function updateChildren(old, fresh) {
    const known = new Map();
    for (const child of old.children) if (child.id) known.set(child.id, child);
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const same = wanted.id ? known.get(wanted.id) : at;
      const reusable = same && same.nodeName === wanted.nodeName && (same.id || "") === (wanted.id || "");
      if (!reusable) {
        old.insertBefore(document.importNode(wanted, true), at);
        continue;
      }
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      if (wanted.nodeType === Node.ELEMENT_NODE) update(same, wanted);
      else if (same.nodeValue !== wanted.nodeValue) same.nodeValue = wanted.nodeValue;
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  async function refresh() {
    let fresh;
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(4 * every) });
      fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!fresh.querySelector("main")) throw new Error("not a page of ours");
    } catch {
      since ??= new Date();
      state.textContent = `No answer from the server since ${since.toLocaleTimeString()}: what you see is old`;
      state.classList.add("lost");
      return;
    }
    since = null;
    state.textContent = "";
    state.classList.remove("lost");
    document.title = fresh.title;
    update(document.querySelector("main"), fresh.querySelector("main"));
    over = !fresh.documentElement.dataset.refresh;
  }

  async function tick() {
    if (busy || over) return;
    busy = true;
    clearTimeout(timer);
    if (!document.hidden && String(getSelection()) === "") await refresh();
    timer = setTimeout(tick, every);
    busy = false;
  }

  document.addEventListener("visibilitychange", tick);
  timer = setTimeout(tick, every);
})();
