// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"time"
)

// watchAgain is how long after its end a watch begins again.
const watchAgain = time.Second

// changes returns a channel that is readable after objects of one of the collections have changed, and each time a
// watch begins or is refused: a reader that then looks at all misses nothing.
func (c *cluster) changes(ctx context.Context, collections ...string) <-chan struct{} {
	changed := make(chan struct{}, 1)
	for _, at := range collections {
		go func() {
			for ctx.Err() == nil {
				c.watch(ctx, at, changed)
				select {
				case <-ctx.Done():
				case <-time.After(watchAgain):
				}
			}
		}()
	}
	return changed
}

// watch returns when the API server ends the watch, or refuses it.
func (c *cluster) watch(ctx context.Context, at string, changed chan<- struct{}) {
	say := func() {
		select {
		case changed <- struct{}{}:
		default: // the reader has not seen the one before, and will look at all
		}
	}
	stream, err := c.Watch(ctx, at)
	say()
	if err != nil {
		return
	}
	defer stream.Close()
	for events := json.NewDecoder(stream); events.Decode(&struct{}{}) == nil; {
		say()
	}
}
