// Package redis holds tests alone: redisstore on real Redis servers, clusters and sentinels.
package redis
