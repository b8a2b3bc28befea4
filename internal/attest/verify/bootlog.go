// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"crypto"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/go-eventlog/register"
	"github.com/google/go-eventlog/tcg"
)

// bootPCRs are the registers that firmware, boot loader and a UKI's stub extend, and nothing after (UAPI group, Linux
// TPM PCR Registry). Left out are 8, of the initdata, 10, of IMA, and 15, of the runtime log.
var bootPCRs = []int{0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 14}

// BootEvent is an event of firmware's log that the registers prove.
type BootEvent struct {
	// Register is the index of a PCR; of TDX 1 is RTMR0.
	Register int    `json:"register"`
	Type     string `json:"type"`
	Digest   string `json:"digest"`
}

func replayBootLog(log []byte, values *pcrs) ([]BootEvent, error) {
	var registers []register.MR
	for _, i := range bootPCRs {
		registers = append(registers, register.PCR{Index: i, Digest: values[i][:], DigestAlg: crypto.SHA256})
	}
	return replay(log, registers)
}

// replay returns the events of a log, if they lead to the values of registers.
func replay(log []byte, registers []register.MR) ([]BootEvent, error) {
	parsed, err := tcg.ParseAndReplay(log, registers, tcg.ParseOpts{AllowPadding: true})
	if replayed := (tcg.ReplayError{}); errors.As(err, &replayed) {
		return nil, fmt.Errorf("the boot log does not lead to the values of registers %v: it was changed, or something else extended them", replayed.InvalidMRs)
	}
	if err != nil {
		return nil, fmt.Errorf("the boot log is not a TCG event log that leads to the registers: %w", err)
	}
	logged := map[int]bool{}
	events := make([]BootEvent, 0, len(parsed))
	for _, e := range parsed {
		logged[e.Index] = true
		events = append(events, BootEvent{e.Index, e.Type.String(), hex.EncodeToString(e.Digest)})
	}
	for _, r := range registers {
		if !logged[r.Idx()] && !bytes.Equal(r.Dgst(), make([]byte, len(r.Dgst()))) {
			return nil, fmt.Errorf("the boot log has no event of register %d, which was extended: it leaves something out", r.Idx())
		}
	}
	return events, nil
}
