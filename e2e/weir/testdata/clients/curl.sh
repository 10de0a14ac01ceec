URL=$TARGET
for n in $(seq 75); do
	BODY="{\"n\": $n}"
# SNIPPET
	echo "$n done"
done
