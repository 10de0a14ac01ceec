// Keeps the progress of the settings page up to date while the page is visible.
( function () {
	const card = document.getElementById( 'weir-sync-progress' );
	const pause = 5000;

	async function update() {
		if ( document.hidden ) {
			return;
		}
		const query = new URLSearchParams( { action: card.dataset.action, _ajax_nonce: card.dataset.nonce } );
		const answer = await fetch( card.dataset.url + '?' + query, { credentials: 'same-origin' } );
		const progress = answer.ok && ( await answer.json() );
		if ( progress && progress.success && progress.data.trim() !== card.innerHTML.trim() ) {
			card.innerHTML = progress.data; // Made and escaped by this site.
		}
	}

	if ( card ) {
		// A page that cannot be asked now is asked again.
		setInterval( () => update().catch( () => {} ), pause );
	}
} )();
