package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageName is the image's name without its version, where it is loaded from a file.
const imageName = "weir"

// The image's user. 65532 is the number that images without a shell have for it.
const (
	imageUser = 65532
	imageData = "/var/lib/weir"
)

// writeImages writes one image for all platforms as an OCI layout in a tar, and for each platform
// one that any `docker load` reads.
func writeImages(programs []program, out string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		image, err := newImage(p)
		if err != nil {
			return fmt.Errorf("image of %s: %w", p, err)
		}
		one := mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.OS, Architecture: p.Arch}}}
		index = mutate.AppendManifests(index, one)
		manifest, err := dockerManifest(image, imageName+":"+p.Version.String())
		if err != nil {
			return err
		}
		single := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), named(one, p.Version))
		if err := writeLayout(single, manifest, filepath.Join(out, "weir_"+p.Version.String()+"_image_"+p.Arch+".tar"), p.Date); err != nil {
			return err
		}
	}
	p := programs[0]
	// The layout names one thing, the index, so that tools need not be told which image is meant.
	whole := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), named(mutate.IndexAddendum{Add: index}, p.Version))
	return writeLayout(whole, nil, filepath.Join(out, "weir_"+p.Version.String()+"_image.tar"), p.Date)
}

// named gives an entry of a layout the names that tools ask for. containerd, and docker with its
// image store, take the whole name from an annotation of their own.
func named(a mutate.IndexAddendum, v version) mutate.IndexAddendum {
	a.Descriptor.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": v.String(),
		"io.containerd.image.name":          "docker.io/library/" + imageName + ":" + v.String(),
	}
	return a
}

func newImage(p program) (v1.Image, error) {
	files, err := imageFiles(p)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: p.Date}, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.OS, p.Arch, v1.Time{Time: p.Date}
	config.Config = v1.Config{
		User:         fmt.Sprintf("%d:%d", imageUser, imageUser),
		Entrypoint:   []string{"/usr/bin/weir"},
		Cmd:          []string{"serve"},
		Env:          []string{"PATH=/usr/bin:/bin", "WEIR_DATA=" + imageData},
		WorkingDir:   imageData,
		Volumes:      map[string]struct{}{imageData: {}},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		StopSignal:   "SIGTERM",
		Healthcheck:  &v1.HealthConfig{Test: []string{"CMD", "/usr/bin/weir", "health"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 5 * time.Second, Retries: 3},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "Weir",
			"org.opencontainers.image.description": "A rate-limiting edge for HTTP APIs",
			"org.opencontainers.image.source":      homepage,
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     p.Version.String(),
			"org.opencontainers.image.revision":    setting(p, "vcs.revision"),
			"org.opencontainers.image.created":     p.Date.UTC().Format(time.RFC3339),
		},
	}
	return mutate.ConfigFile(image, config)
}

func setting(p program, key string) string {
	for _, s := range p.Info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// imageFiles returns the image's root as a tar: the program, the certificate authorities, a name
// for the user, and the only directory that the program writes to.
func imageFiles(p program) ([]byte, error) {
	program, err := os.ReadFile(p.Path)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) {
		h.ModTime, h.Size, h.Format = p.Date, int64(len(content)), tar.FormatUSTAR
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write(content)
		}
	}
	dir := func(name string, mode fs.FileMode, owner int) {
		add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode), Uid: owner, Gid: owner}, nil)
	}
	regular := func(name string, mode fs.FileMode, content []byte) {
		add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode)}, content)
	}
	for _, name := range []string{"bin", "etc", "etc/ssl", "etc/ssl/certs", "usr", "usr/bin", "var", "var/lib"} {
		dir(name, 0o755, 0)
	}
	dir("tmp", 0o1777, 0) // for another user, such as that of Envoy Gateway
	dir(strings.TrimPrefix(imageData, "/"), 0o700, imageUser)
	regular("etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nweir:x:%d:%d:weir:%s:/sbin/nologin\n", imageUser, imageUser, imageData))
	regular("etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nweir:x:%d:\n", imageUser))
	regular("etc/ssl/certs/ca-certificates.crt", 0o644, authorities())
	regular("usr/bin/weir", 0o755, program)
	// By this name Weir serves in place of envoyproxy/ratelimit, as Envoy Gateway starts it.
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/ratelimit", Linkname: "/usr/bin/weir", Mode: 0o777}, nil)
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// authorities returns Mozilla's certificate authorities, from the module that go.mod pins and not
// from the machine that builds. It leaves out those with constraints, which a file cannot express.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// A bytes.Buffer does not fail.
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return b.Bytes()
}
