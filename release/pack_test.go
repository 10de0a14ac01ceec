package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// standIn returns a program to pack in place of weir: the test itself, which has a build record.
func standIn(t *testing.T, dir string, touched time.Time) program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "weir")
	// Its first mebibyte is enough, and quick to compress.
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content[:1<<20], 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, touched, touched); err != nil {
		t.Fatal(err)
	}
	return program{platform: platform{"linux", "amd64"}, Path: path, Info: info, Version: version{Number: "0.1.0"}, Date: time.Unix(1796000000, 0)}
}

func someTexts(t *testing.T) *texts {
	t.Helper()
	x := &texts{bash: []byte("# bash\n"), zsh: []byte("#compdef weir\n"), fish: []byte("# fish\n"), powershell: []byte("# PowerShell\n")}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "LICENSES.txt"} {
		x.documents = append(x.documents, file{Name: name, Content: []byte(name + "\n"), Mode: 0o644})
	}
	x.manuals = []file{{Name: "weir.1", Content: []byte(".TH WEIR 1\n"), Mode: 0o644}}
	x.policy = x.own("policy.yaml")
	return x
}

func TestTheSameProgramPackedElsewhereIsTheSameBytes(t *testing.T) {
	var outs []string
	for _, touched := range []time.Time{time.Unix(1000000000, 0), time.Unix(1700000000, 0)} {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		if err := pack([]program{standIn(t, dir, touched)}, someTexts(t), out); err != nil {
			t.Fatal(err)
		}
		outs = append(outs, out)
	}
	if err := sameFiles(outs[0], outs[1]); err != nil {
		t.Error(err)
	}
	files, err := os.ReadDir(outs[0])
	if err != nil || len(files) != 8 {
		t.Errorf("%d files: %v, want an archive, three packages, two images, an SBOM and the sums", len(files), err)
	}
	check := exec.Command("sha256sum", "--check", "--quiet", sumsName)
	check.Dir = outs[0]
	if text, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

func TestTheArchiveForWindowsHasWhatIsOfUseThere(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	p := standIn(t, dir, time.Unix(0, 0))
	p.platform = platform{"windows", "arm64"}
	if err := pack([]program{p}, someTexts(t), out); err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(filepath.Join(out, "weir_0.1.0_windows_arm64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var names []string
	for _, f := range z.File {
		name, ok := strings.CutPrefix(f.Name, "weir_0.1.0_windows_arm64/")
		if !ok || !f.Modified.Equal(p.Date) {
			t.Errorf("%s has the date %v", f.Name, f.Modified)
		}
		names = append(names, name)
	}
	want := []string{"weir.exe", "LICENSE", "README.md", "CHANGELOG.md", "LICENSES.txt", "completions/weir.bash", "completions/_weir", "completions/weir.fish",
		"completions/weir.ps1", "man/weir.1", "policy.yaml"}
	if !slices.Equal(names, want) {
		t.Errorf("it has %q, want %q", names, want)
	}
	if packages, _ := filepath.Glob(filepath.Join(out, "*.[dra][epk][bmk]")); len(packages) > 0 {
		t.Errorf("there are packages of Linux beside it: %q", packages)
	}
}

// The commands of the README make a service of an archive.
func TestTheREADMEOfAnArchiveNamesWhatIsInIt(t *testing.T) {
	out := t.TempDir()
	if err := writeArchive(standIn(t, t.TempDir(), time.Unix(0, 0)), someTexts(t), out); err != nil {
		t.Fatal(err)
	}
	unpacked := t.TempDir()
	if text, err := exec.Command("tar", "-xf", filepath.Join(out, "weir_0.1.0_linux_amd64.tar.xz"), "-C", unpacked, "--strip-components=1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	readme := string(new(texts).own("README.md"))
	files, err := os.ReadDir(unpacked)
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		name := f.Name()
		if f.IsDir() {
			name += "/"
		}
		if name != "README.md" && !strings.Contains(readme, "`"+name+"`") {
			t.Errorf("it does not name %s", name)
		}
	}
	unit, err := os.ReadFile(filepath.Join(unpacked, "systemd/weir.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/local/bin/weir serve --config /etc/weir/weir.yaml ") {
		t.Errorf("%v, the unit is\n%s", err, unit)
	}
	for _, command := range []string{"install weir /usr/local/bin/\n", " /etc/weir weir.yaml policy.yaml\n", " /etc/systemd/system systemd/*\n", " weir\n"} {
		if !strings.Contains(readme, command) {
			t.Errorf("it lacks the command that ends with %q", command)
		}
	}
}

// A socket unit replaces the address of the settings, so it is no more open.
func TestTheSocketUnitListensWhereTheSettingsDo(t *testing.T) {
	x := new(texts)
	for name, line := range map[string]string{"weir.socket": "\nListenStream=127.0.0.1:8080\n", "weir.yaml": "\nlisten: 127.0.0.1:8080 "} {
		if !strings.Contains(string(x.own(name)), line) {
			t.Errorf("%s lacks %q", name, line)
		}
	}
}

func TestAPackageIsDescribedAsItsKindWants(t *testing.T) {
	for _, f := range formats {
		i, err := describe(standIn(t, t.TempDir(), time.Unix(0, 0)), someTexts(t), f, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		first, rest, _ := strings.Cut(i.Description, "\n")
		if dots := strings.Contains(rest, "\n.\n"); dots != (f.suffix == "deb") || f.suffix == "rpm" && (first == i.RPM.Summary || i.RPM.Summary != summary) {
			t.Errorf("the %s has the summary %q and the description %q", f.suffix, i.RPM.Summary, i.Description)
		}
		kinds := map[string]string{}
		for _, c := range i.Contents {
			kinds[c.Destination] = c.Type
		}
		for name, want := range map[string]string{
			"/etc/weir": "dir", "/usr/share/doc/weir": "dir", "/usr/share/doc/weir/LICENSE": "license", "/usr/share/doc/weir/LICENSES.txt": "license",
			"/usr/share/doc/weir/README.md": "doc", "/usr/share/man/man1/weir.1.gz": "doc", "/usr/bin/weir": "file",
		} {
			if f.suffix == "rpm" && kinds[name] != want {
				t.Errorf("the rpm has %s as %q, want %q", name, kinds[name], want)
			}
		}
	}
}

// A docker that keeps images itself reads manifest.json, and containerd the index.
func TestALoadedImageHasItsName(t *testing.T) {
	out := t.TempDir()
	if err := writeImages([]program{standIn(t, t.TempDir(), time.Unix(1000000000, 0))}, out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"weir_0.1.0_image_amd64.tar", "weir_0.1.0_image.tar"} {
		var index v1.IndexManifest
		unmarshal(t, filepath.Join(out, name), map[string]any{"index.json": &index})
		if len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "docker.io/library/weir:0.1.0" {
			t.Errorf("the index of %s is %+v", name, index)
		}
	}
	var docker []struct{ RepoTags []string }
	unmarshal(t, filepath.Join(out, "weir_0.1.0_image_amd64.tar"), map[string]any{"manifest.json": &docker})
	if len(docker) != 1 || !slices.Equal(docker[0].RepoTags, []string{"weir:0.1.0"}) {
		t.Errorf("docker's manifest is %+v", docker)
	}
}

// unmarshal reads files of a tar as JSON, by their names.
func unmarshal(t *testing.T, path string, into map[string]any) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if v := into[h.Name]; v != nil {
			if err := json.NewDecoder(r).Decode(v); err != nil {
				t.Fatalf("%s: %v", h.Name, err)
			}
			delete(into, h.Name)
		}
	}
	if len(into) > 0 {
		t.Fatalf("%s lacks %v", path, slices.Collect(maps.Keys(into)))
	}
}

func TestADifferenceIsFound(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{a: "one", b: "two"} {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := sameFiles(a, b); err == nil || !strings.Contains(err.Error(), "twice: f") {
		t.Errorf("the error is %v", err)
	}
}

func TestTheSBOMListsTheModulesOfTheProgram(t *testing.T) {
	dir := t.TempDir()
	p := standIn(t, dir, time.Unix(0, 0))
	if err := writeSBOM(p, dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, p.name()+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got bom
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Components) != 1+len(p.Info.Deps) || !bytes.Contains(text, []byte(`"pkg:golang/github.com/goreleaser/nfpm/v2@`)) {
		t.Errorf("it lists %d components of %d modules", len(got.Components), len(p.Info.Deps))
	}
}

func TestAVersionIsThatOfATagOrOfACommit(t *testing.T) {
	for text, want := range map[string]string{
		"v0.1.0": "0.1.0", "v1.2.3-rc1": "1.2.3-rc1",
		"v0.0.0-20261127190416-1ef3516d90b1":   "0.0.0-git20261127190416",
		"v0.1.1-0.20261127190416-1ef3516d90b1": "0.1.1-git20261127190416",
	} {
		if v, err := parseVersion(text); err != nil || v.String() != want {
			t.Errorf("%s is %s, %v; want %s", text, v, err, want)
		}
	}
	for _, text := range []string{"", "(devel)", "0.1.0", "v0.1.0+dirty", "v0.0.0-20261127190416-1ef3516d90b1+dirty", "v1.2.3-final"} {
		if v, err := parseVersion(text); err == nil {
			t.Errorf("%q is taken for %s", text, v)
		}
	}
}

func TestAManualPageHasThePartsOfTheHelp(t *testing.T) {
	help := map[string]string{
		"": "About it.\nMore.\n\nUsage:\n  weir [command]\n\nAvailable Commands:\n  help        Help\n  serve       Run the edge\n\n" +
			"Flags:\n  -h, --help                     help\n      --header 'NAME: VALUE'     .a field\n",
		"serve": ".leading dot\n\n  a list\n\nUsage:\n  weir serve\n\nExamples:\n  weir  serve\n",
	}
	pages, err := manuals(func(command ...string) ([]byte, error) { return []byte(help[strings.Join(command, " ")]), nil }, time.Unix(0, 0))
	if err != nil || len(pages) != 2 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for i, want := range []string{
		".SH SYNOPSIS\n.nf\n  weir [command]\n.fi\n.SH DESCRIPTION\nAbout it.\nMore.\n.SH COMMANDS\n.TP\n\\fBhelp\\fR\nHelp\n.TP\n\\fBserve\\fR\nRun the edge\n" +
			".SH OPTIONS\n.TP\n\\fB\\-h, \\-\\-help\\fR\nhelp\n.TP\n\\fB\\-\\-header \\(aqNAME: VALUE\\(aq\\fR\n\\&.a field\n",
		"weir\\-serve \\- Run the edge\n.SH SYNOPSIS\n.nf\n  weir serve\n.fi\n.SH DESCRIPTION\n\\&.leading dot\n.PP\n.br\n.in +2n\na list\n.br\n.in -2n\n" +
			".SH EXAMPLES\n.nf\n  weir  serve\n.fi\n",
	} {
		if !strings.Contains(string(pages[i].Content), want) {
			t.Errorf("%s lacks %q:\n%s", pages[i].Name, want, pages[i].Content)
		}
	}
}
