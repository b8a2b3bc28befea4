// SPDX-License-Identifier: Apache-2.0

package docker

import "net/http"

// images by name, with the volumes that they declare.
var images = map[string][]string{Image: {Volume}, EndingImage: nil}

// networks by name, with their ids.
var networks = map[string]string{Network: "7ea29fc1412292a2d7bba362f9253545fecdfa8ce9a6e37dd10ba8bee7129812", none: "8a1ac1f9d8d3a8b6a3c6f1b2f3c9fd1d3a0c4cb2f5c4e8b1a9f3d2c1b0a99887"}

// none is the network without one.
const none = "none"

const imageID = "sha256:d74508fb6632491cea586a1fd7d748dfc5274cd6fdfedee309ecdcbc2bf5cb82"

func (k *call) ping() {
	head := k.out.Header()
	head.Set("Api-Version", k.engine.Version)
	head.Set("Ostype", "linux")
	head.Set("Content-Type", "text/plain; charset=utf-8")
	if k.op.verb == http.MethodGet {
		_, _ = k.out.Write([]byte("OK"))
	}
}

func (k *call) info() {
	k.answer(http.StatusOK, map[string]any{
		"ID": "7TRN:IPZB:QYBB:VPBQ:UMPP:KARE:6ZNR:XE6T:7EWV:PKF4:ZOJD:TPYS", "Name": "laptop", "OSType": "linux", "Architecture": "x86_64",
		"NCPU": CPUs, "MemTotal": Memory, "Containers": len(k.engine.containers), "Images": len(images),
	})
}

func (k *call) inspectImage() {
	name := k.path["name"]
	if _, ok := images[name]; !ok {
		k.fail(http.StatusNotFound, "No such image: %s", name)
		return
	}
	k.answer(http.StatusOK, map[string]any{"Id": imageID, "RepoTags": []string{name}, "Architecture": "amd64", "Os": "linux", "Size": 1 << 20})
}

func (k *call) inspectNetwork() {
	name := k.path["id"]
	id, ok := networks[name]
	if !ok {
		k.fail(http.StatusNotFound, "network %s not found", name)
		return
	}
	k.answer(http.StatusOK, map[string]any{"Name": name, "Id": id, "Driver": "bridge", "Scope": "local",
		"IPAM": map[string]any{"Driver": "default", "Config": []any{map[string]any{"Subnet": "172.17.0.0/16", "Gateway": Gateway}}}})
}
