// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
)

// withStatus has the servers of clusters take writes of a status. They have no paths for
// that and take a status with the rest of an object, and their handler is theirs alone.
func withStatus(mux *server.WorkloadClustersMux) error {
	field := reflect.ValueOf(mux).Elem().FieldByName("muxServer")
	if !field.IsValid() || field.Type() != reflect.TypeFor[http.Server]() {
		return errors.New("the in-memory server of this version of Cluster API has no field muxServer: see where its handler is now")
	}
	inner := (*http.Server)(unsafe.Pointer(field.UnsafeAddr()))
	inner.Handler = statuses(inner.Handler)
	return nil
}

// statuses leads writes of a status to the object.
func statuses(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, is := strings.CutSuffix(r.URL.Path, "/status")
		if is && slices.Contains([]string{http.MethodPut, http.MethodPatch}, r.Method) {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = path, ""
		}
		next.ServeHTTP(w, r)
	})
}
