// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"
)

// Run serves as the file at path says, and follows it as it changes: signals
// only make that faster. A file that is wrong changes nothing. It returns when
// ctx ends, or when the port cannot be had: then the container's restart policy
// tries again.
func Run(ctx context.Context, path string, again <-chan os.Signal, log *slog.Logger) error {
	text, c, err := load(path)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf(":%d", c.Port))
	if err != nil {
		return err
	}
	log.Info("serving", "port", c.Port, "backends", len(c.Backends))
	p := &Proxy{Log: log}
	p.Use(ctx, c.Backends)
	return p.serveAs(ctx, l, path, text, again)
}

// serveAs serves at l with the backends of a file, whose text is in use.
func (p *Proxy) serveAs(ctx context.Context, l net.Listener, path string, text []byte, again <-chan os.Signal) error {
	ctx, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() { defer close(followed); follow(ctx, p, path, text, again) }()
	defer func() { stop(); <-followed }()
	return p.Serve(ctx, l)
}

func load(path string) ([]byte, Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, Config{}, err
	}
	c, err := Parse(bytes.NewReader(text))
	if err != nil {
		return text, Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return text, c, nil
}

// followEvery is how often the file is looked at.
const followEvery = 500 * time.Millisecond

func follow(ctx context.Context, p *Proxy, path string, last []byte, again <-chan os.Signal) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-tick.C:
		}
		text, c, err := load(path)
		if bytes.Equal(text, last) {
			continue
		}
		last = text
		if err != nil {
			p.Log.Error("the configuration stays as it was", "error", err)
			continue
		}
		p.Use(ctx, c.Backends)
		p.Log.Info("reloaded", "backends", len(c.Backends))
	}
}
