// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// TestStopIsBounded: a call that does not end is cancelled when its time is
// over, which is shorter when the host is gone.
func TestStopIsBounded(t *testing.T) {
	const short = 20 * time.Millisecond
	for cause, patience := range map[error]patience{
		context.Canceled: {stopped: short, orphaned: time.Hour},
		errOrphan:        {stopped: time.Hour, orphaned: short},
	} {
		cloud, err := fake.New(fake.Options{})
		if err != nil {
			t.Fatal(err)
		}
		blocked, gate := fake.Block(fake.OpCreate)
		cloud.Inject(blocked)
		path := filepath.Join(t.TempDir(), "s")
		listener, err := listen(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancelCause(t.Context())
		served := make(chan error, 1)
		go func() {
			served <- serve(ctx, listener, wire.NewServer(wire.Options{Name: "fake", Cloud: fake.NewManager(), Configured: cloud}), patience)
		}()
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		created := make(chan error, 1)
		go func() {
			_, err := wire.NewProvider(conn, "", nil).CreateInstance(t.Context(), "pod", "key", cloudinit.Raw(""), provider.InstanceTypeSpec{})
			created <- err
		}()
		<-gate.Reached()
		stop(cause)
		if err := <-created; !errors.Is(err, provider.ErrUnavailable) {
			t.Errorf("%v: the call ends with %v", cause, err)
		}
		if err := <-served; err != nil {
			t.Errorf("%v: %v", cause, err)
		}
		conn.Close()
	}
}
