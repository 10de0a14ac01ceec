// SNIPPET
for (let n = 1; n <= 75; n++) {
  try {
    const r = await client.post(process.env.TARGET, {n});
    console.log(n, r.status);
  } catch (e) {
    console.log(n, String(e));
  }
}
