// SPDX-License-Identifier: Apache-2.0

package providercheck

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/outrigger/outrigger/internal/cli/providercheck/record"
	"github.com/outrigger/outrigger/internal/program"
)

// startRecorder serves the proxy of --record and --replay, if one of them is
// asked for.
func (a *app) startRecorder() (stop func(), err error) {
	stop, a.records = func() {}, a.record
	if a.replay != "" {
		if a.known, err = record.Read(a.replay); err != nil {
			return nil, program.Usagef("--replay: %w", err)
		}
		folder, err := os.MkdirTemp("", "provider-check-")
		if err != nil {
			return nil, err
		}
		stop, a.records = func() { os.RemoveAll(folder) }, filepath.Join(folder, "records")
	}
	if a.records == "" {
		return stop, nil
	}
	if a.recorder, err = record.Start(a.records, nil); err != nil {
		stop()
		return nil, program.Usagef("--record: %w", err)
	}
	remove := stop
	return func() { a.recorder.Close(); remove() }, nil
}

// compare returns where the simulator that was just asked differs from the cloud.
func (a *app) compare(to io.Writer) error {
	if a.replay == "" {
		return nil
	}
	now, err := record.Read(a.records)
	if err != nil {
		return fmt.Errorf("--replay: nothing was asked of the simulator: %w", err)
	}
	differences := record.Compare(a.known, now)
	for _, line := range differences {
		fmt.Fprintln(to, "differs  "+line)
	}
	if len(differences) > 0 {
		return fmt.Errorf("--replay: the simulator differs from the cloud in %d places", len(differences))
	}
	return nil
}
