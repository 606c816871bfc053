//! 77: what must keep working.

use protocol::ids::WorkspaceId;
use sandbox::CellEnd;
use sandbox::settings::InterpreterLimits;

use crate::stage::play;
use crate::world::{self, World};

const STANDARD: [(&str, &str); 14] = [
    (
        "sqlite3",
        "import sqlite3\nc = sqlite3.connect('x.db'); c.execute('create table t (a)'); c.execute('insert into t values (1)'); c.commit(); c.execute('pragma journal_mode=wal')\nassert c.execute('select a from t').fetchall() == [(1,)]",
    ),
    (
        "subprocess",
        "import subprocess, sys\nassert subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True, text=True, check=True).stdout == '1\\n'\nassert subprocess.check_output('echo $((1+1)) | cat', shell=True) == b'2\\n'",
    ),
    (
        "threads",
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as pool:\n    assert sum(pool.map(abs, range(100))) == 4950",
    ),
    (
        "asyncio subprocess",
        "import asyncio\nprocess = await asyncio.create_subprocess_exec('echo', 'hello', stdout=-1)\nassert (await process.communicate())[0] == b'hello\\n'",
    ),
    (
        "asyncio in a function",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 1\nassert await f() == 1",
    ),
    (
        "tempfile",
        "import tempfile, os\nwith tempfile.TemporaryDirectory() as d:\n    with tempfile.NamedTemporaryFile(dir=d) as f:\n        f.write(b'x')\n    assert os.listdir(d) == []\nwith tempfile.TemporaryFile() as f:\n    f.write(b'x')",
    ),
    (
        "zipfile",
        "import zipfile\nwith zipfile.ZipFile('x.zip', 'w') as z:\n    z.writestr('a/b.txt', 'text')\nzipfile.ZipFile('x.zip').extractall('unzipped')\nassert open('unzipped/a/b.txt').read() == 'text'",
    ),
    (
        "shutil.copy2",
        "import shutil, os\nopen('one', 'w').write('1')\nshutil.copy2('one', 'two'); shutil.copytree('unzipped', 'copied'); shutil.move('two', 'three'); shutil.rmtree('copied')\nassert open('three').read() == '1'",
    ),
    (
        "tarfile",
        "import tarfile\nwith tarfile.open('x.tar.gz', 'w:gz') as t:\n    t.add('unzipped')\ntarfile.open('x.tar.gz').extractall('untarred', filter='data') if hasattr(tarfile, 'data_filter') else tarfile.open('x.tar.gz').extractall('untarred')",
    ),
    (
        "processes by fork",
        "import os\nchild = os.fork()\nif child == 0:\n    os._exit(7)\nassert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7",
    ),
    (
        "signals of its own",
        "import signal, time\nhits = []\nsignal.signal(signal.SIGALRM, lambda *_: hits.append(1))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(0.1)\nassert hits",
    ),
    (
        "modes of its own files",
        "import os\nhandle = os.open('script.sh', os.O_WRONLY | os.O_CREAT, 0o700); os.write(handle, b'#!/bin/sh\\necho ran'); os.close(handle)\nimport subprocess\nassert subprocess.check_output(['./script.sh']) == b'ran\\n'",
    ),
    (
        "time zones and random numbers",
        "import secrets, uuid, datetime, random\nsecrets.token_hex(), uuid.uuid4(), datetime.datetime.now().astimezone()",
    ),
    (
        "mmap",
        "import mmap\nm = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE); m[:2] = b'ok'; m.close()\nwith open('mapped', 'wb+') as f:\n    f.truncate(4096)\n    m = mmap.mmap(f.fileno(), 0); m[:2] = b'ok'; m.close()\nassert open('mapped', 'rb').read(2) == b'ok'",
    ),
];

const PACKAGES: [(&str, &str); 7] = [
    (
        "numpy",
        "import numpy as np\na = np.random.default_rng(0).random((300, 300)); assert np.allclose(a @ np.linalg.inv(a), np.eye(300), atol=1e-6)",
    ),
    (
        "pandas",
        "import pandas as pd\nf = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']}); f.to_csv('x.csv', index=False); assert pd.read_csv('x.csv').equals(f); f.to_excel('x.xlsx'); assert len(pd.read_excel('x.xlsx')) == 2",
    ),
    (
        "scipy",
        "from scipy import optimize, stats\nassert abs(optimize.brentq(lambda x: x * x - 2, 0, 2) - 2 ** .5) < 1e-9; stats.norm.cdf(0)",
    ),
    (
        "matplotlib",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]); plt.title('x'); plt.savefig('x.png')",
    ),
    (
        "PIL",
        "from PIL import Image\nImage.new('RGB', (10, 10), 'red').save('y.jpg'); assert Image.open('y.jpg').size == (10, 10)",
    ),
    (
        "sympy",
        "import sympy\nx = sympy.symbols('x'); assert sympy.integrate(2 * x, x) == x ** 2",
    ),
    (
        "openpyxl",
        "import openpyxl\nb = openpyxl.Workbook(); b.active['A1'] = 1; b.save('z.xlsx')",
    ),
];

pub(crate) fn ordinary_code_works(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let packages: &[_] = if world::has_packages() {
            &PACKAGES
        } else {
            &[]
        };
        for (name, code) in STANDARD.iter().chain(packages) {
            let outcome = stage.run(&workspace, code).await;
            assert_eq!(
                (&outcome.error, outcome.end),
                (&None, CellEnd::Completed),
                "{name}: {outcome:#?}"
            );
            if *name == "matplotlib" {
                assert_eq!(outcome.images.len(), 1, "{outcome:?}");
            }
        }
        let code = "
import multiprocessing
def square(n):
    return n * n
context = multiprocessing.get_context('fork')
with context.Pool(2) as pool:
    result = pool.map(square, range(5))
result";
        let outcome = stage.run(&workspace, code).await;
        if world.is_strong() {
            assert_eq!(
                outcome.value.map(|value| value.text).as_deref(),
                Some("[0, 1, 4, 9, 16]"),
                "{:?}",
                outcome.error
            );
        } else {
            let error = outcome.error.expect("semaphores need /dev/shm");
            assert!(
                ["PermissionError", "OSError", "FileNotFoundError"].contains(&error.name.as_str()),
                "{error:?}"
            );
        }
        assert_eq!(stage.sandbox.stats().killed, 0);
    });
}
