// One view of each budget for all tabs and workers of an origin. A Web Lock is held while a slot is
// taken, IndexedDB keeps the states, and a channel wakes the tabs that wait. Each tab holds a lock of
// its own as long as it lives, so the others see when it has died.

import { revive } from './budget.js';

const name = 'weir-pace', patience = 1000;

/** @type {import('./types.js').share} */
export const share = async (tab, now, wake) => {
  const { locks } = navigator;
  const channel = new BroadcastChannel(name);
  channel.onmessage = wake;
  await new Promise(held => locks.request(name + tab, () => new Promise(() => held(0))));
  /** @type {Promise<IDBDatabase> | undefined} */
  let opened;
  const open = () => opened ??= new Promise((done, fail) => {
    const request = indexedDB.open(name);
    request.onupgradeneeded = () => request.result.createObjectStore(name);
    request.onerror = () => fail(request.error);
    request.onsuccess = () => {
      const db = request.result;
      db.onclose = () => opened = undefined;
      db.onversionchange = () => { // another page deletes it, or has a newer form
        opened = undefined;
        db.close();
      };
      const old = db.transaction(name, 'readwrite').objectStore(name).openCursor();
      old.onsuccess = () => {
        if (now() - old.result?.value?.used > 36e5) old.result?.delete();
        old.result?.continue();
      };
      done(db);
    };
  });

  /** @type {import('./types.js').Shared} */
  return (windows, change, news) => locks.request(name, { signal: /** @type {any} */ (AbortSignal).timeout(patience) }, async () => {
    /** @type {IDBTransaction} */
    let transaction, over = false;
    /** @type {any} */
    let late;
    const slow = new Promise((_, fail) => late = setTimeout(() => {
      over = true;
      fail(Error('IndexedDB does not answer'));
      try {
        transaction?.abort();
      } catch { /* it is committed just now */ }
    }, patience));
    const work = async () => {
      const alive = new Set((await locks.query()).held?.map(lock => lock.name?.slice(name.length)));
      const db = await open().catch(error => {
        opened = undefined; // it is tried again
        throw error;
      });
      if (over) return;
      return new Promise((done, fail) => {
        transaction = db.transaction(name, 'readwrite');
        const store = transaction.objectStore(name);
        transaction.onabort = () => fail(transaction.error);
        /** @type {import('./types.js').Budget[]} */
        const budgets = [];
        windows.forEach((window, i) => {
          const got = store.get(window.key);
          got.onsuccess = () => {
            budgets[i] = revive(got.result, window.limit, now());
            budgets[i].bury(alive);
            if (i + 1 < windows.length) return;
            const result = change(budgets, now());
            budgets.forEach((budget, j) => store.put({ ...budget }, windows[j].key));
            transaction.oncomplete = () => {
              if (news) channel.postMessage(0);
              done([result, budgets]);
            };
          };
        });
      });
    };
    return /** @type {any} */ (await Promise.race([slow, work()]).finally(() => clearTimeout(late)));
  });
};
