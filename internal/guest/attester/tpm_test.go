// SPDX-License-Identifier: Apache-2.0

package attester

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
	"github.com/outrigger/outrigger/test/swtpm"
)

var zero [sha256.Size]byte

func newTPM(t testing.TB, s *swtpm.TPM, folder string) *TPM {
	t.Helper()
	a, err := NewTPM(s.Open(t), Options{Folder: folder, BootLog: filepath.Join(folder, "none")})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func evidence(t testing.TB, a attest.Attester) attest.TPMEvidence {
	t.Helper()
	data, err := a.Evidence(context.Background(), []byte("nonce"))
	var e attest.TPMEvidence
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func pull(t testing.TB, image string) eventlog.Event {
	t.Helper()
	e, err := eventlog.PullImage(image, "sha256:"+strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func pcr(t testing.TB, a *TPM, index uint) [sha256.Size]byte {
	t.Helper()
	value, err := a.readPCR(index)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// A reboot resets registers, and the key is the same though nothing of it is stored.
func TestAttestationKeyIsTheSameAfterAReboot(t *testing.T) {
	s := swtpm.StartBlank(t)
	first := newTPM(t, s, t.TempDir())
	before := evidence(t, first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	s.Reboot(t)
	if after := evidence(t, newTPM(t, s, t.TempDir())); string(after.AKPublic) != string(before.AKPublic) {
		t.Error("the key of the same TPM is another after a reboot")
	}
	if other := evidence(t, newTPM(t, swtpm.StartBlank(t), t.TempDir())); string(other.AKPublic) == string(before.AKPublic) {
		t.Error("two TPMs have the same key")
	}
}

// swtpm has room for three keys and sessions: what is not let go of shows.
func TestTPMIsNotFilled(t *testing.T) {
	a := newTPM(t, swtpm.StartBlank(t), t.TempDir())
	for range 5 {
		evidence(t, a)
		if _, err := a.Identity(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := a.Activate(context.Background(), attest.TPMCredential{Blob: []byte{0, 2, 0, 0}, Secret: []byte{0, 1, 0}}); err == nil {
			t.Fatal("a credential of no meaning was decrypted")
		}
	}
}

func TestBindInitDataExtendsOnce(t *testing.T) {
	ctx := context.Background()
	s := swtpm.StartBlank(t)
	digest := []byte(strings.Repeat("d", 48))
	want := eventlog.Extend(zero, [sha256.Size]byte(digest[:32]))
	for range 2 { // the second is a process that was started again
		a := newTPM(t, s, t.TempDir())
		for range 2 {
			if err := a.BindInitData(ctx, digest); err != nil {
				t.Fatal(err)
			}
		}
		if pcr(t, a, attest.InitDataPCR) != want {
			t.Error("PCR 8 is not sha256(zeros, digest)")
		}
		if err := a.BindInitData(ctx, []byte("another")); err == nil || !strings.Contains(err.Error(), "neither zero nor that of this initdata") {
			t.Errorf("another initdata: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Each case is what a process that was killed at some instant leaves, or what somebody did to the log.
func TestRuntimeLogIsRecovered(t *testing.T) {
	ctx := context.Background()
	s := swtpm.StartBlank(t)
	for _, c := range []struct {
		name   string
		change func(t *testing.T, a *TPM)
		events int
		err    string
	}{
		{name: "nothing happened", change: func(*testing.T, *TPM) {}, events: 1},
		{name: "the log was lost: it begins with what the register has", change: func(t *testing.T, a *TPM) { write(t, a, "") }},
		{name: "killed before the register was extended", change: func(t *testing.T, a *TPM) { write(t, a, read(t, a)+"a b c\n") }, events: 2},
		{name: "killed within a line", change: func(t *testing.T, a *TPM) { write(t, a, read(t, a)+"a b") }, events: 1},
		{name: "two lines more than the register knows", change: func(t *testing.T, a *TPM) { write(t, a, read(t, a)+"a b c\na b c\n") }, err: "Start the VM again"},
		{name: "a line was changed", change: func(t *testing.T, a *TPM) { write(t, a, strings.Replace(read(t, a), "first", "other", 1)) }, err: "Start the VM again"},
		{name: "something else extended the register", change: func(t *testing.T, a *TPM) {
			if err := a.extend(eventlog.PCR, zero); err != nil {
				t.Fatal(err)
			}
		}, err: "something else extended it"},
		{name: "not a log", change: func(t *testing.T, a *TPM) { write(t, a, "hello\n") }, err: "does not begin with"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.Reboot(t)
			folder := t.TempDir()
			a := newTPM(t, s, folder)
			if err := a.Extend(ctx, pull(t, "first")); err != nil {
				t.Fatal(err)
			}
			c.change(t, a)
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			a, err := NewTPM(s.Open(t), Options{Folder: folder, BootLog: filepath.Join(folder, "none")})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Extend(ctx, pull(t, "last")); err != nil {
				t.Fatal(err)
			}
			log, err := eventlog.Parse(evidence(t, a).RuntimeLog)
			if err != nil {
				t.Fatal(err)
			}
			if len(log.Events) != c.events+1 || log.Replay(len(log.Events)) != pcr(t, a, eventlog.PCR) {
				t.Errorf("%d events, want %d that lead to the register:\n%s", len(log.Events), c.events+1, read(t, a))
			}
		})
	}
}

func read(t *testing.T, a *TPM) string {
	t.Helper()
	data, err := os.ReadFile(a.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, a *TPM, text string) {
	t.Helper()
	if err := os.WriteFile(a.log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRuntimeLogHasBounds(t *testing.T) {
	a := newTPM(t, swtpm.StartBlank(t), t.TempDir())
	for name, e := range map[string]eventlog.Event{
		"two lines":        {Domain: "a", Operation: "b", Content: "c\nd e f"},
		"a space too many": {Domain: "a b", Operation: "c", Content: "d"},
		"no content":       {Domain: "a", Operation: "b"},
		"too long":         {Domain: "a", Operation: "b", Content: strings.Repeat("c", eventlog.MaxLine)},
	} {
		if err := a.Extend(context.Background(), e); err == nil {
			t.Errorf("%s: an event was accepted", name)
		}
	}
	line := strings.Repeat("a b "+strings.Repeat("c", eventlog.MaxLine-5)+"\n", eventlog.MaxSize/eventlog.MaxLine-1)
	text := eventlog.New(zero) + line
	log, err := eventlog.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log.Events {
		full, _ := e.Line()
		if err := a.extend(eventlog.PCR, sha256.Sum256([]byte(full))); err != nil {
			t.Fatal(err)
		}
	}
	write(t, a, text)
	big := eventlog.Event{Domain: "a", Operation: "b", Content: strings.Repeat("c", eventlog.MaxLine-5)}
	if err := a.Extend(context.Background(), big); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("a log that is full: %v", err)
	}
	if log.Replay(len(log.Events)) != pcr(t, a, eventlog.PCR) {
		t.Error("an event that was refused extended the register")
	}
}

// A key that its maker left in the TPM is used if it can be.
func TestPersistentEndorsementKey(t *testing.T) {
	for _, usable := range []bool{true, false} {
		a := newTPM(t, swtpm.Start(t), t.TempDir())
		before, err := a.Identity(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		template := tpm2.RSAEKTemplate
		if !usable {
			template = tpm2.RSASRKTemplate
		}
		persist(t, a, template)
		after, err := a.Identity(context.Background())
		if !usable {
			if err == nil || !strings.Contains(err.Error(), "tpm2_evictcontrol") {
				t.Errorf("a key of another template: %v", err)
			}
			continue
		}
		if err != nil || string(after.EndorsementKey) != string(before.EndorsementKey) || len(after.Certificate) == 0 {
			t.Errorf("the identity by the persistent key is not the one by the template: %v", err)
		}
	}
}

func persist(t *testing.T, a *TPM, template tpm2.TPMTPublic) {
	t.Helper()
	key, err := createPrimary(a.tpm, template)
	if err != nil {
		t.Fatal(err)
	}
	old := tpm2.EvictControl{Auth: tpm2.TPMRHOwner, PersistentHandle: endorsementKey,
		ObjectHandle: &tpm2.NamedHandle{Handle: endorsementKey, Name: key.Name}}
	_, _ = old.Execute(a.tpm) // swtpm_setup leaves one
	if _, err := (tpm2.EvictControl{Auth: tpm2.TPMRHOwner, PersistentHandle: endorsementKey,
		ObjectHandle: &tpm2.NamedHandle{Handle: key.ObjectHandle, Name: key.Name}}).Execute(a.tpm); err != nil {
		t.Fatal(err)
	}
	if _, err := (tpm2.FlushContext{FlushHandle: key.ObjectHandle}).Execute(a.tpm); err != nil {
		t.Fatal(err)
	}
}

func TestEvidenceStopsWithItsContext(t *testing.T) {
	a := newTPM(t, swtpm.StartBlank(t), t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := a.Evidence(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// What a start of a pod waits for: the first evidence with the key's creation, and those after it.
func BenchmarkEvidence(b *testing.B) {
	a := newTPM(b, swtpm.Start(b), b.TempDir())
	for name, forget := range map[string]bool{"first": true, "next": false} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				evidence(b, a)
				if forget {
					if _, err := (tpm2.FlushContext{FlushHandle: a.key.handle.Handle}).Execute(a.tpm); err != nil {
						b.Fatal(err)
					}
					a.key = nil
				}
			}
		})
	}
	b.Run("identity", func(b *testing.B) {
		for b.Loop() {
			if _, err := a.Identity(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
