// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

func TestUpload(t *testing.T) {
	content := append(append(bytes.Repeat([]byte("a"), 10), make([]byte, 10)...), "tail"...)
	var mu sync.Mutex
	sent := map[int64]string{}
	var last provider.ImageProgress
	u := Upload{From: bytes.NewReader(content), Size: int64(len(content)), Part: 5, AtOnce: 3, Tell: func(p provider.ImageProgress) { last = p }}
	u.Put = func(_ context.Context, at int64, part []byte) error {
		mu.Lock()
		defer mu.Unlock()
		sent[at] = string(part)
		if cap(part) < 5 {
			t.Errorf("no room behind the part at %d", at)
		}
		return nil
	}
	if err := u.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 3 || sent[0] != "aaaaa" || sent[5] != "aaaaa" || sent[20] != "tail" {
		t.Errorf("%v", sent)
	}
	if last.Done != last.Total || last.Total != int64(len(content)) {
		t.Errorf("%+v", last)
	}
}

func TestUploadsThatFail(t *testing.T) {
	broken := errors.New("broken")
	full := strings.NewReader(strings.Repeat("a", 100))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		size int64
		put  error
		want error
	}{
		"a part":       {t.Context(), 100, broken, broken},
		"a short file": {t.Context(), 200, nil, provider.ErrInvalidArgument},
		"given up":     {canceled, 100, nil, context.Canceled},
	} {
		u := Upload{From: full, Size: test.size, Part: 10, AtOnce: 2, Tell: func(provider.ImageProgress) {}}
		u.Put = func(context.Context, int64, []byte) error { return test.put }
		if err := u.Run(test.ctx); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReader(t *testing.T) {
	var last provider.ImageProgress
	r := &Reader{From: strings.NewReader("content"), Total: 7, Tell: func(p provider.ImageProgress) { last = p }}
	for range 2 { // it may begin again
		text, err := io.ReadAll(r)
		if string(text) != "content" || err != nil || last.Done != 7 || last.Total != 7 {
			t.Errorf("%q, %v, %+v", text, err, last)
		}
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
	}
	r.From = io.MultiReader()
	if _, err := r.Seek(0, io.SeekStart); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}
