// The work of a process or a tab of callers in JavaScript, in the forms of job.go: a job in, a report out.

const nanosPerMilli = 1e6;

/** @returns a report, and the functions that count a request and its answer */
export const newReport = () => {
  const report = {Sent: 0, Served: 0, Refused: 0, RefusedBy: {}, ServedBy: {}, Told: 0, Unshared: 0, Longest: 0, Failed: 0, First: ''};
  const countIn = (byReset, reset) => (byReset[reset] = (byReset[reset] ?? 0) + 1);
  return {
    report,
    sending() {
      report.Sent++;
      report.Began ??= new Date().toISOString();
    },
    /** reset is the value of the answer's X-RateLimit-Reset. */
    answered(status, reset) {
      if (status === 429) {
        report.Refused++;
        countIn(report.RefusedBy, reset);
      } else if (status === 200) {
        report.Served++;
        countIn(report.ServedBy, reset);
        report.Ended = new Date().toISOString();
      }
    },
  };
};

/** @returns fetch that counts in a report what is sent and answered */
export const countedFetch = ({sending, answered}) => async (input, init) => {
  sending();
  const response = await fetch(input, init);
  answered(response.status, response.headers.get('X-RateLimit-Reset') ?? 0);
  return response;
};

/** @returns the options of pace() for a job */
export const paceOptions = (job) => {
  const options = {maxWait: job.Within / nanosPerMilli};
  if (job.Shift) options.now = () => Date.now() + job.Shift / nanosPerMilli;
  if (job.Everything) options.threshold = 0;
  return options;
};

/** @returns a function that sends a request of requestOf through a function like fetch */
export const overFetch = (fetching) => async ({url, method, headers, body}) => {
  const response = await fetching(url, {method, headers, body});
  return {status: response.status, text: await response.text()};
};

/** A request has the method and the body that its number gives it, as in upstream.go. */
const requestOf = async (job, number, sha256) => {
  const method = ['GET', 'PUT', 'POST'][number % 3];
  const path = method === 'GET' ? '/v1/wp/status' : '/v1/wp/documents';
  return {
    url: `${job.URL}${path}?number=${number}`,
    method,
    headers: {Authorization: `Bearer ${job.Token}`},
    body: method === 'GET' ? undefined : (await sha256(String(number))).repeat(1 + number % 64),
  };
};

/** Sends the requests of a job, job.Goroutines of them at a time. */
export const work = async (job, report, send, sha256) => {
  let next = 0;
  await Promise.all(Array.from({length: job.Goroutines}, async () => {
    while (next < job.Requests) {
      const number = job.First + next++;
      const began = performance.now();
      try {
        const {status, text} = await send(await requestOf(job, number, sha256));
        if (status !== 200 || text !== String(number)) throw new Error(`request ${number} was answered ${status} ${text.slice(0, 200)}`);
      } catch (error) {
        if (++report.Failed === 1) report.First = String(error);
      }
      report.Longest = Math.max(report.Longest, Math.round((performance.now() - began) * nanosPerMilli));
    }
  }));
};
