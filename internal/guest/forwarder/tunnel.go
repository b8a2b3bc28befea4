// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"os"
	"sync"

	"github.com/outrigger/outrigger/internal/peerpods/frametunnel"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
)

// tunnel is the VM's end of an encrypted tunnel.
type tunnel struct {
	// frames is nil without one; then no connection is taken for it.
	frames *os.File

	mu sync.Mutex
	// replace ends the connection that carries frames now; nil before the first.
	replace context.CancelFunc
	// carrying is held by that connection.
	carrying sync.Mutex
}

func (o *Options) encrypted() bool {
	return o.Config.PodNetwork != nil && o.Config.PodNetwork.TunnelType == podnetwork.TunnelTLS
}

// carry carries frames until the connection ends or the node makes a new one, which it
// does when it has lost this one, perhaps unnoticed here.
func (t *tunnel) carry(ctx context.Context, conn *podtls.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	if t.replace != nil {
		t.replace()
	}
	t.replace = cancel
	t.mu.Unlock()
	t.carrying.Lock()
	defer t.carrying.Unlock()
	return frametunnel.Carry(ctx, t.frames, conn)
}
