// Package chart holds the chart of charts/weir to Helm and to the types of Kubernetes. It is a
// module of its own, because Helm and those types are large.
package chart
