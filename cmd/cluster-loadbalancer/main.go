// SPDX-License-Identifier: Apache-2.0

// Command cluster-loadbalancer is the load balancer of a cluster's control plane,
// or of a Service, on a Docker Engine. It is all there is in its container.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/outrigger/outrigger/internal/loadbalancer"
)

func main() {
	paths := os.Args[1:]
	if len(paths) == 0 {
		paths = []string{loadbalancer.ConfigPath}
	}
	if paths[0] == "-h" || paths[0] == "--help" {
		fmt.Fprintf(os.Stderr, "usage: cluster-loadbalancer [FILE...]\nBalances TCP connections as each FILE says; by default %s.\n", loadbalancer.ConfigPath)
		os.Exit(2)
	}
	// HAProxy's images end by SIGUSR1 and reload by SIGHUP; so does this one.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGUSR1, os.Interrupt)
	defer stop()
	if err := run(ctx, paths); err != nil {
		fmt.Fprintln(os.Stderr, "cluster-loadbalancer:", err)
		os.Exit(1)
	}
}

// run serves as all files say. When one cannot be served any more none is: the
// container's restart policy tries again.
func run(ctx context.Context, paths []string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(paths))
	for _, path := range paths {
		again := make(chan os.Signal, 1)
		signal.Notify(again, syscall.SIGHUP)
		go func() { ended <- loadbalancer.Run(ctx, path, again, slog.Default()) }()
	}
	var errs []error
	for range paths {
		errs = append(errs, <-ended)
		stop()
	}
	return errors.Join(errs...)
}
