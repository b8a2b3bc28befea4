// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// dataLink is the symlink that the kubelet exchanges when a volume changes:
// to a new folder with all files, so that a reader sees old or new, never both.
const dataLink = "..data"

// volume is one that the kubelet changes.
type volume struct {
	host, guest string
	// version is the target of its link when it was copied.
	version string
}

func newVolume(host string) volume {
	v := volume{host: filepath.Clean(host)}
	v.version = v.current()
	return v
}

func (v volume) current() string {
	target, _ := os.Readlink(filepath.Join(v.host, dataLink))
	return target
}

// refresher copies ConfigMaps, Secrets and their like again when the kubelet
// has written a new version.
type refresher struct {
	watcher *fsnotify.Watcher
	log     *slog.Logger
	pod     *podclient.Pod
	volumes map[string]volume // by host path
	stop    context.CancelFunc
	done    chan struct{}
}

// refresh watches volumes that have been copied to the guest, until Close.
func refresh(log *slog.Logger, pod *podclient.Pod, volumes []volume) (*refresher, error) {
	if len(volumes) == 0 {
		return nil, nil
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching the pod's volumes: %w", err)
	}
	r := &refresher{watcher: w, log: log, pod: pod, volumes: map[string]volume{}, done: make(chan struct{})}
	for _, v := range volumes {
		r.volumes[v.host] = v
		if err := w.Add(v.host); err != nil {
			w.Close()
			return nil, fmt.Errorf("watching volume %s: %w", v.host, err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go r.run(ctx)
	return r, nil
}

// Close ends the watching; a nil refresher has nothing to end.
func (r *refresher) Close() {
	if r == nil {
		return
	}
	r.stop()
	r.watcher.Close()
	<-r.done
}

func (r *refresher) run(ctx context.Context) {
	defer close(r.done)
	// What changed between the first copy and the watch has no event.
	for _, v := range r.volumes {
		if v.current() != v.version {
			r.copy(ctx, v)
		}
	}
	for {
		select {
		case ev, ok := <-r.watcher.Events:
			if !ok {
				return
			}
			v, known := r.volumes[filepath.Dir(ev.Name)]
			if known && filepath.Base(ev.Name) == dataLink && ev.Has(fsnotify.Create) {
				r.copy(ctx, v)
			}
		case err, ok := <-r.watcher.Errors:
			if !ok {
				return
			}
			r.log.Warn("watching the pod's volumes", "error", err)
		}
	}
}

// copy copies until nothing vanished meanwhile: the kubelet removes the old version right
// after it has exchanged the link. Names sort so that the new folder is in the guest
// before the link to it.
func (r *refresher) copy(ctx context.Context, v volume) {
	var err error
	for range 5 {
		if err = r.pod.CopyFile(ctx, v.host, v.guest); err == nil {
			return
		}
		if r.pod.Err() != nil || poll.Sleep(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	if ctx.Err() == nil {
		r.log.Warn("a changed volume did not reach the pod's VM", "volume", v.host, "error", err)
	}
}
