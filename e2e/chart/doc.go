// Package chart holds the chart of charts/weir to Helm, kubeconform and the types of Kubernetes. It
// is a module of its own, because these are large.
package chart
