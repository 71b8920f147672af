// "Show the request": the request of the current list as curl, Python and JavaScript.
import { tags } from "./dom.js";
import { state } from "./store.js";

const { details, summary, h3, pre, p, a } = tags;
const python = (value) => JSON.stringify(value).replace(/\btrue\b/g, "True").replace(/\bfalse\b/g, "False").replace(/\bnull\b/g, "None");

function codes(body) {
	const address = location.href.replace(/[#?].*$/, "").replace(/\/$/, ""), text = JSON.stringify(body);
	return {
		curl: `curl ${address}/recommend -H 'Content-Type: application/json' \\\n  -d '${text.replaceAll("'", "'\\''")}'`,
		Python: `from client import Client  # ${address}/static/client.py\n\nfound = Client("${address}").recommend(\n${Object.entries(body).map(([name, value]) => `    ${name}=${python(value)},\n`).join("")})\nprint([item["name"] for item in found["items"]])`,
		JavaScript: `import { Client } from "${address}/static/client.js";\n\nconst found = await new Client("${address}").recommend(${text});\nconsole.log(found.items.map((item) => item.name));`,
	};
}

export function requestCode() {
	const { sent } = state.answers.list ?? {};
	return sent && details({ class: "code" }, summary(null, "Show the request"),
		p({ class: "note" }, "A service with keys needs one: add the header ", "Authorization: Bearer KEY", ", or pass it to the client. ", a({ href: "docs" }, "All routes")),
		Object.entries(codes(sent)).map(([language, text]) => [h3(null, language), pre({ tabindex: 0 }, text)]));
}
