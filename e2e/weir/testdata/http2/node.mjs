// Calls a server by node's http2 module, and prints what comes back.
import http2 from "node:http2";

const session = http2.connect(process.argv[2], { rejectUnauthorized: false });
session.on("error", (error) => { throw error; });

// ask sends a request. onData, if given, gets each part of the answer's body as it comes.
function ask(method, path, body, onData) {
	return new Promise((resolve, reject) => {
		const stream = session.request({ ":method": method, ":path": path });
		const answer = { interim: [], parts: [], trailers: {} };
		stream.on("headers", (headers) => answer.interim.push(headers[":status"]));
		stream.on("response", (headers) => Object.assign(answer, { status: headers[":status"], headers }));
		stream.on("trailers", (trailers) => { answer.trailers = trailers; });
		stream.on("data", (part) => { answer.parts.push(part); onData?.(part); });
		stream.on("end", () => resolve({ ...answer, body: Buffer.concat(answer.parts) }));
		stream.on("error", reject);
		stream.end(body);
	});
}

const sum = (bytes) => bytes.reduce((total, byte) => total + byte, 0);

let a = await ask("GET", "/get");
console.log("get:", a.status, a.body.toString());
a = await ask("POST", "/echo", Buffer.from(Uint8Array.from({ length: 100000 }, (_, i) => (i * 7) % 251)));
console.log("echo:", a.status, a.body.length, sum(a.body));
a = await ask("GET", "/big");
console.log("big:", a.status, a.body.length, sum(a.body));
a = await ask("GET", "/trailers");
console.log("trailers:", a.status, a.body.toString(), a.trailers["x-sum"]);
a = await ask("GET", "/hints");
console.log("hints:", ...a.interim, a.status);

const events = [];
await ask("GET", "/events", undefined, (part) => {
	for (const [, event] of part.toString().matchAll(/data: (\d)/g)) {
		events.push(event);
		ask("POST", "/seen?" + event);
	}
});
console.log("events:", ...events);

const statuses = [];
for (let i = 0; i < 3; i++) statuses.push((a = await ask("GET", "/limited")).status);
console.log("limited:", ...statuses, a.headers["x-ratelimit-remaining"], a.headers["retry-after"] > 0);
session.close();
