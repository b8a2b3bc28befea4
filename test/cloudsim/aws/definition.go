// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Definitions is the module that has the definitions of the APIs.
const Definitions = "github.com/aws/aws-sdk-go@v1.55.8"

// definition is one API (api-2.json).
type definition struct {
	Metadata struct {
		APIVersion   string `json:"apiVersion"`
		Protocol     string `json:"protocol"`
		XMLNamespace string `json:"xmlNamespace"`
		TargetPrefix string `json:"targetPrefix"`
	} `json:"metadata"`
	Operations map[string]*operation `json:"operations"`
	Shapes     map[string]*shape     `json:"shapes"`
}

type operation struct {
	HTTP struct {
		Method       string `json:"method"`
		RequestURI   string `json:"requestUri"`
		ResponseCode int    `json:"responseCode"`
	} `json:"http"`
	Input  *member `json:"input"`
	Output *member `json:"output"`
}

// member is a reference to a shape, from a structure, a list or an operation.
type member struct {
	Shape         string `json:"shape"`
	LocationName  string `json:"locationName"`
	QueryName     string `json:"queryName"`
	ResultWrapper string `json:"resultWrapper"`
	Location      string `json:"location"`
}

type shape struct {
	Type     string             `json:"type"`
	Members  map[string]*member `json:"members"`
	Member   *member            `json:"member"`
	Required []string           `json:"required"`
	Payload  string             `json:"payload"`
	Enum     []string           `json:"enum"`
	Min      *float64           `json:"min"`
	Max      *float64           `json:"max"`
	Pattern  string             `json:"pattern"`
}

var (
	loaded   = map[string]*definition{}
	loadedMu sync.Mutex
)

// load reads a definition once for all tests of a process.
func load(t testing.TB, name string) *definition {
	t.Helper()
	loadedMu.Lock()
	defer loadedMu.Unlock()
	if loaded[name] == nil {
		loaded[name] = read(t, filepath.Join(cloudsim.ModuleDir(t, Definitions), "models", "apis", name, "api-2.json"))
	}
	return loaded[name]
}

func read(t testing.TB, file string) *definition {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := &definition{}
	if err := json.Unmarshal(data, d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if d.Operations["CreateVolume"] != nil {
		addCopyVolumes(d)
	}
	if len(d.Operations) == 0 || len(d.Shapes) == 0 {
		t.Fatalf("%s defines nothing", file)
	}
	return d
}

func (d *definition) shape(m *member) *shape {
	s := d.Shapes[m.Shape]
	if s == nil {
		panic(fmt.Sprintf("the definition lacks shape %s", m.Shape))
	}
	return s
}
