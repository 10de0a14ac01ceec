package pacer

// ContractWindows returns the windows of the built-in table, each after its
// limiter's name.
func ContractWindows() (all []string) {
	for _, row := range contractLimiters {
		for _, w := range row.windows {
			all = append(all, row.name+" "+w)
		}
	}
	return all
}

// Aliases returns the number of distinct credentials that are remembered as they
// were sent.
func Aliases(t *Transport) int { return len(t.aliases) }
