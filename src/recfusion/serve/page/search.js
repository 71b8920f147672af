// The search field (a combobox with a list, by the ARIA pattern) and the shelf that it fills.
import { count, number, tags } from "./dom.js";
import { add, change, remove, state } from "./store.js";
import { similarPanel } from "./list.js";

const { aside, button, div, h2, input, label, li, p, span, ul } = tags;

const found = () => (state.query.trim() ? state.answers.search?.data?.items ?? [] : []).filter(({ item }) => !state.shelf.includes(item));

function pick({ item, name }) {
  state.query = "";
  state.open = false;
  state.active = -1;
  add(item, name);
}

function key(event) {
  const items = found(), last = items.length - 1;
  const moves = { ArrowDown: state.active < last ? state.active + 1 : 0, ArrowUp: state.active > 0 ? state.active - 1 : last };
  if (event.key in moves && items.length) change({ active: moves[event.key], open: true });
  else if (event.key === "Enter" && items.length) pick(items[Math.max(0, state.active)]);
  else if (event.key === "Escape") change(state.open ? { open: false, active: -1 } : { query: "" });
  else return;
  event.preventDefault();
}

export function search() {
  const items = found(), open = state.open && state.query.trim() !== "";
  const nothing = open && !items.length && state.answers.search?.data && state.answers.search.query === state.query.trim();
  return div(
    { class: "search" },
    label({ for: "query", class: "hidden" }, "Search titles"),
    input({
      id: "query", type: "text", role: "combobox", autocomplete: "off", spellcheck: false, value: state.query,
      placeholder: `Search ${number(state.model.items)} titles`,
      "aria-expanded": String(open && items.length > 0), "aria-controls": "found", "aria-autocomplete": "list",
      "aria-activedescendant": open && state.active >= 0 ? `found-${state.active}` : undefined,
      onInput: (event) => change({ query: event.target.value, open: true, active: -1 }),
      onKeyDown: key,
      onFocus: () => change({ open: true }),
      onBlur: () => change({ open: false, active: -1 }),
    }),
    ul(
      { id: "found", role: "listbox", "aria-label": "Titles found", hidden: !open || !items.length },
      open && items.map((one, place) =>
        li(
          {
            key: one.item, id: `found-${place}`, role: "option", "aria-selected": String(place === state.active),
            onMouseDown: (event) => event.preventDefault(), // the field keeps the focus
            onClick: () => pick(one),
          },
          span(null, one.name),
        ),
      ),
    ),
    nothing && p({ class: "found note" }, "No title is like that."),
  );
}

export function shelf() {
  const unknown = new Set(state.answers.list?.data?.unknown ?? []);
  return aside(
    { class: "shelf", "aria-labelledby": "shelf-title" },
    div(
      { class: "head" },
      h2({ id: "shelf-title" }, "Your shelf"),
      state.shelf.length > 0 && button({ class: "quiet", onClick: () => change({ shelf: [], similar: "", step: 0 }, { history: true }) }, "Clear"),
    ),
    search(),
    state.shelf.length > 0
      ? ul(
          { class: "things", "aria-label": count(state.shelf.length, "thing") + " on the shelf" },
          state.shelf.map((item) => {
            const name = state.names[item] ?? item;
            return li(
              { key: item, class: unknown.has(item) ? "unknown" : "" },
              button({ class: "name", title: `Similar to ${name}`, "aria-expanded": String(state.similar === item), onClick: () => change({ similar: state.similar === item ? "" : item }) }, name),
              button({ class: "cross", "aria-label": `Take ${name} off the shelf`, onClick: () => remove(item) }, "×"),
            );
          }),
        )
      : p({ class: "note" }, "Put a few things here that you like. The list follows at once."),
    unknown.size > 0 && p({ class: "note" }, `${count(unknown.size, "thing")} on the shelf ${unknown.size === 1 ? "is" : "are"} unknown to this model and left out.`),
    state.shelf.includes(state.similar) && similarPanel(),
  );
}
