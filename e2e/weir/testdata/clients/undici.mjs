// SNIPPET
import {request} from 'undici';
for (let n = 1; n <= 75; n++) {
  try {
    const r = await request(process.env.TARGET, {dispatcher: client, method: 'POST', body: JSON.stringify({n}), headers: {'content-type': 'application/json'}});
    await r.body.dump();
    console.log(n, r.statusCode);
  } catch (e) {
    console.log(n, String(e));
  }
}
