// The model card and the last evaluation, for readers without statistics.
import { count, number, tags } from "./dom.js";
import { state } from "./store.js";
import { view } from "./parts.js";

const { circle, code, dd, details, div, dl, dt, h3, li, p, section, summary, svg, ul } = tags;
const sentence = (text) => text && `${text[0].toUpperCase()}${text.slice(1)}.`;

// A hundred dots, one filled for each hundredth.
const waffle = (share) =>
	svg({ class: "waffle", viewBox: "0 0 200 50", "aria-hidden": "true" }, Array.from({ length: 100 }, (_, n) =>
		circle({ class: n < Math.round(100 * share) && "full", cx: (n % 20) * 10 + 5, cy: Math.floor(n / 20) * 10 + 5, r: 3.6 })));

const metric = ({ metric, mean, ci95, words }) =>
	section({ key: metric, class: "metric" }, waffle(mean), p(null, words),
		ci95 && p({ class: "note" }, `For other users it would probably be ${number(100 * ci95[0])} to ${number(100 * ci95[1])} in 100.`));

function card(one) {
	const { data, users, items, interactions, preparation } = one.trained_on, on = (who) => one.metrics.filter(({ judged_on }) => judged_on === who);
	const judged = [on("test"), on("validation")].find((found) => found.length);
	const facts = { Users: users && number(users), Interactions: interactions && number(interactions), Items: number(items), Data: data, Model: one.model };
	return section({ key: one.name, class: "card" },
		h3(null, one.name),
		p(null, sentence(one.title)),
		dl({ class: "facts" }, Object.entries(facts).filter(([, value]) => value).map(([name, value]) => div({ key: name }, dt(null, name), dd(null, value)))),
		h3(null, "How good is it?"),
		judged
			? [
					p(null, "Some users were held out. The model saw part of the history of each and made a list: did it contain the other items?"),
					div({ class: "metrics" }, judged.map(metric)),
					judged[0].judged_on === "validation" && p({ class: "note" }, "Its settings may have been chosen on these users, so expect slightly lower values for others."),
				]
			: p(null, "It has not been evaluated: it was trained on all users. ", code(null, "recfusion train --all-users --evaluate"), " does both."),
		on("against").map(({ metric, words }) => p({ key: metric, class: "note" }, words)),
		h3(null, "Limitations"),
		p(null, "It knows which items people had, not why, and it repeats the habits in its data. It does not keep unsuitable items out of a list: use filters for that."),
		one.holds_histories && p({ class: "note" }, "It contains rows of its training data without user ids: protect its folder as you protect the data."),
		details(null, summary(null, "How the data was prepared"), ul(null, preparation.map((line) => li({ key: line }, line)))),
		one.licence && p({ class: "note" }, `Licence of the data: ${one.licence}`));
}

// The columns of the item table and what the page takes them for.
function columns() {
	const roles = Object.entries(state.model.roles);
	return roles.length > 0 && section({ class: "roles" }, h3(null, "Columns of the items"),
		dl({ class: "facts" }, roles.map(([role, column]) => div({ key: role }, dt(null, role), dd(null, column)))),
		p({ class: "note" }, "Found by their names and values; ", code(null, "recfusion train --roles price=COLUMN,link=none"), " sets others.", roles.some(([role]) => role === "image") && !state.model.image_origins.length && [" Images need ", code(null, "recfusion serve --image-origin ORIGIN"), "."]));
}

export const model = () => view("models", "About the model", "", state.model.models.map(card), columns());
