// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/IBM/go-sdk-core/v5/core"
	"github.com/IBM/vpc-go-sdk/vpcv1"
)

// Object is in Cloud Object Storage, and holds an image.
const Object = "cos://us-south/my-bucket/podvm.qcow2"

// image is an imported one.
type image struct{ name, arch, status string }

// archOf returns the architecture of an image that there is.
func (s *Sim) archOf(id string) (string, bool) {
	if own := s.imported[id]; own != nil {
		return own.arch, true
	}
	arch, ok := images[id]
	return arch, ok
}

// readImage reads the body of CreateImage with the SDK's own types.
func readImage(r *http.Request) (*vpcv1.ImagePrototypeImageByFile, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	var proto *vpcv1.ImagePrototypeImageByFile
	if err := vpcv1.UnmarshalImagePrototypeImageByFile(fields, &proto); err != nil {
		return nil, err
	}
	if err := core.ValidateStruct(proto, "prototype"); err != nil {
		return nil, err
	}
	var sent, known any
	json.Unmarshal(text, &sent)
	json.Unmarshal([]byte(toJSON(proto)), &known)
	return proto, lost("image", sent, known)
}

func (s *Sim) createImage(c *call) (any, error) {
	if err := s.need("is.image.image.create"); err != nil {
		return nil, err
	}
	proto, err := readImage(c.r)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "bad_field", "%v", err)
	}
	for _, other := range s.imported {
		if other.name == *proto.Name {
			return nil, refuse(http.StatusConflict, "validation_unique_failed", "Provided Name (%s) is not unique", *proto.Name)
		}
	}
	system := text(proto, "operating_system", "name")
	id := fmt.Sprintf("r006-%08d-image", s.number())
	made := &image{*proto.Name, system[strings.LastIndexByte(system, '-')+1:], "pending"}
	s.imported[id] = made
	s.World.Add("image", id, nil)
	s.later(func() {}, func() {
		if made.status = "available"; *proto.File.Href != Object {
			made.status = "failed"
		}
	})
	return map[string]any{"id": id, "name": made.name, "status": made.status}, nil
}

func (s *Sim) deleteImage(c *call) (any, error) {
	if err := s.need("is.image.image.delete"); err != nil {
		return nil, err
	}
	made := s.imported[c.id]
	switch {
	case made == nil:
		return nil, notFound("Image", c.id)
	case made.status == "pending":
		return nil, refuse(http.StatusConflict, "invalid_state", "Image %s is pending", c.id)
	}
	delete(s.imported, c.id)
	s.World.Remove("image", c.id)
	return nil, nil
}
