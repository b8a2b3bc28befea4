// SPDX-License-Identifier: Apache-2.0

// Command cluster-loadbalancer is the load balancer of a cluster's control plane
// on a Docker Engine. It is all there is in its container.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/outrigger/outrigger/internal/capi/docker/loadbalancer"
)

func main() {
	path := loadbalancer.ConfigPath
	if len(os.Args) == 2 {
		path = os.Args[1]
	}
	if len(os.Args) > 2 || path == "-h" || path == "--help" {
		fmt.Fprintf(os.Stderr, "usage: cluster-loadbalancer [FILE]\nBalances TCP connections as FILE says, which is %s by default.\n", loadbalancer.ConfigPath)
		os.Exit(2)
	}
	// HAProxy's images end by SIGUSR1 and reload by SIGHUP; so does this one.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGUSR1, os.Interrupt)
	defer stop()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	if err := loadbalancer.Run(ctx, path, again, slog.Default()); err != nil {
		fmt.Fprintln(os.Stderr, "cluster-loadbalancer:", err)
		os.Exit(1)
	}
}
