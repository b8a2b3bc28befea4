// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/outrigger/outrigger/test/cloudsim"
)

type configMap = corev1.ConfigMap

// apiPath is of the ConfigMaps of a namespace.
const apiPath = "/api/v1/namespaces/{namespace}/configmaps"

func (p *Pool) serveAPI(t testing.TB) {
	mux, actions := http.NewServeMux(), map[string]string{}
	handle := func(pattern, action string, do func(http.ResponseWriter, *http.Request)) {
		actions[pattern] = action
		mux.HandleFunc(pattern, func(out http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer token" {
				refuse(out, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			do(out, r)
		})
	}
	handle("GET "+apiPath+"/{name}", "configmaps:get", p.getMap)
	handle("POST "+apiPath, "configmaps:create", p.createMap)
	handle("PUT "+apiPath+"/{name}", "configmaps:update", p.updateMap)
	p.server = cloudsim.Serve(t, p.World.Handler(mux, func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		return actions[pattern]
	}, func(out http.ResponseWriter, _ *http.Request, f cloudsim.Fault) {
		refuse(out, f.Status, f.Code, f.Message)
	}))
	p.Kubeconfig = p.KubeconfigOf(t, "token")
}

// KubeconfigOf is a kubeconfig with a token; the server takes one only.
func (p *Pool) KubeconfigOf(t testing.TB, token string) string {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	kc := clientcmdapi.NewConfig()
	kc.Clusters["c"] = &clientcmdapi.Cluster{Server: p.server.URL, CertificateAuthority: p.server.CAFile}
	kc.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	kc.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kc.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*kc, file); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// refuse returns as the API server does, with a Status.
func refuse(out http.ResponseWriter, status int, reason, message string) {
	answer(out, status, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(status), Reason: metav1.StatusReason(reason), Message: message,
	})
}

func answer(out http.ResponseWriter, status int, body any) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(body)
}

func mapKey(namespace, name string) string { return namespace + "/" + name }

// store gives the map the next version.
func (p *Pool) store(namespace, name string, data map[string]string) *configMap {
	p.version++
	m := &configMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: strconv.Itoa(p.version)}, Data: data}
	p.maps[mapKey(namespace, name)] = m
	return m
}

func (p *Pool) getMap(out http.ResponseWriter, r *http.Request) {
	m := p.maps[mapKey(r.PathValue("namespace"), r.PathValue("name"))]
	if m == nil {
		refuse(out, http.StatusNotFound, "NotFound", fmt.Sprintf("configmaps %q not found", r.PathValue("name")))
		return
	}
	answer(out, http.StatusOK, m)
}

func (p *Pool) createMap(out http.ResponseWriter, r *http.Request) {
	var in configMap
	if !read(out, r, &in) {
		return
	}
	if p.maps[mapKey(r.PathValue("namespace"), in.Name)] != nil {
		refuse(out, http.StatusConflict, "AlreadyExists", fmt.Sprintf("configmaps %q already exists", in.Name))
		return
	}
	answer(out, http.StatusCreated, p.store(r.PathValue("namespace"), in.Name, in.Data))
}

// updateMap takes an update that was decided from the version that is there.
func (p *Pool) updateMap(out http.ResponseWriter, r *http.Request) {
	var in configMap
	if !read(out, r, &in) {
		return
	}
	m := p.maps[mapKey(r.PathValue("namespace"), r.PathValue("name"))]
	switch {
	case m == nil:
		refuse(out, http.StatusNotFound, "NotFound", fmt.Sprintf("configmaps %q not found", r.PathValue("name")))
	case in.ResourceVersion != m.ResourceVersion:
		refuse(out, http.StatusConflict, "Conflict", "the object has been modified; please apply your changes to the latest version and try again")
	default:
		answer(out, http.StatusOK, p.store(m.Namespace, m.Name, in.Data))
	}
}

// protobufType is what clientsets of client-go send.
const protobufType = "application/vnd.kubernetes.protobuf"

func read(out http.ResponseWriter, r *http.Request, into *configMap) bool {
	if r.Header.Get("Content-Type") == protobufType {
		data, err := io.ReadAll(r.Body)
		if err == nil {
			kinds := runtime.NewScheme()
			_ = corev1.AddToScheme(kinds)
			_, _, err = protobuf.NewSerializer(kinds, kinds).Decode(data, nil, into)
		}
		if err != nil {
			refuse(out, http.StatusBadRequest, "BadRequest", err.Error())
		}
		return err == nil
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		refuse(out, http.StatusBadRequest, "BadRequest", err.Error())
		return false
	}
	return true
}
