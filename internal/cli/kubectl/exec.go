// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/tools/remotecommand"
)

const (
	probeContainer = "probe"
	// maxSaid bounds what is kept of a command's output, in bytes.
	maxSaid = 16 << 10
)

// exec runs a command in a pod, and returns what it has written. The error of one that fails is its error output.
type exec func(ctx context.Context, namespace, pod string, command []string) (string, error)

func (a *App) execIn(c *cluster) exec {
	if a.exec != nil {
		return a.exec
	}
	return c.exec
}

func (c *cluster) exec(ctx context.Context, namespace, pod string, command []string) (string, error) {
	at, err := c.URL(core(namespace, "pods", pod, "exec"), url.Values{"container": {probeContainer}, "stdout": {"true"}, "stderr": {"true"}, "command": command})
	if err != nil {
		return "", err
	}
	executor, err := remotecommand.NewWebSocketExecutor(c.config, http.MethodGet, at)
	if err != nil {
		return "", fmt.Errorf("run a command in pod %s: %w", pod, err)
	}
	var out, errs limited
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
	if text := strings.TrimSpace(errs.String()); err != nil && text != "" {
		return "", errors.New(text)
	}
	return out.String(), err
}

// limited keeps the beginning of what is written.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), maxSaid-l.Len())])
	return len(p), nil
}
