// SPDX-License-Identifier: Apache-2.0

package podsize

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestReadListRefusesWhatCostsTooMuch(t *testing.T) {
	for _, text := range []string{
		`{"cpu":"1e999999"}`, `{"cpu":"1.5e-999999999"}`, `{"cpu":"1E+0999"}`, `{"cpu":1e2147483647}`,
		`{"memory":"` + strings.Repeat("9", 100) + `"}`, `[]`, `{"cpu":{}}`,
	} {
		begin := time.Now()
		if list, err := ReadList([]byte(text)); err == nil {
			t.Errorf("%.60s is read as %v after %v", text, list, time.Since(begin))
		}
	}
	for _, text := range []string{``, `null`, `{"cpu":"1e3","memory":"1Ei","example.com/a":"12E6","b":"1E","c":7}`} {
		if _, err := ReadList([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLongRecordIsRefused(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{AnnotationRecord: `{"containers":{` + strings.Repeat(" ", 16<<10) + `}}`}
	if _, err := Mutate(pod, "example.com/vm"); err == nil || !strings.Contains(err.Error(), "at most 16384") {
		t.Errorf("error %v", err)
	}
	pod.Annotations[AnnotationRecord] = `{"containers":{"a":{"limits":{"cpu":"1e999999"}}}}`
	if _, err := Mutate(pod, "example.com/vm"); err == nil || !strings.Contains(err.Error(), "is not a quantity") {
		t.Errorf("error %v", err)
	}
}
