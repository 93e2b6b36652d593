//! The content types of a file: their shares, sizes and lives, and their embedded types.

use toml::Spanned;

use crate::check::{ROUNDING, pause_us};
use crate::error::WorkloadError;
use crate::facts::{CYCLE_US_MAX, CYCLE_US_MIN};
use crate::file::{Asked, Embeds, Source, Type};
use crate::means::{Size, SizeChoice};
use crate::mix::Chance;
use crate::name::{OBJECT_BYTES_MAX, is_extension};
use crate::plan::{EMBEDDED_MAX, Embedding, Kind, Names};
use crate::units::{Amount, Bytes};
use crate::workload::ContentType;

/// Most content types in a file.
const TYPES_MAX: usize = 64;

/// Largest difference between the stated share of an embedded type and its share in the pages.
const EMBEDDED_SHARE_TOLERANCE: f64 = 0.03;

/// Longest MIME type, in bytes.
const MIME_BYTES_MAX: usize = 100;

pub(crate) struct Types {
    pub(crate) public: Vec<ContentType>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) direct: Vec<(Chance, u8)>,
    pub(crate) asks_per_page: f64,
    pub(crate) names_per_page: f64,
}

type File = [Spanned<Type>];

pub(crate) fn build(
    source: &Source<'_>,
    file: &File,
    names: &Names,
) -> Result<Types, WorkloadError> {
    check_count(source, file)?;
    check_shares(source, file)?;
    for (index, kind) in file.iter().enumerate() {
        check_texts(source, kind.as_ref(), &file[..index])?;
    }
    let mut kinds = Vec::with_capacity(file.len());
    for kind in file {
        kinds.push(build_kind(source, kind.as_ref(), file, names)?);
    }
    check_embedded(source, file)?;
    let direct_share: f64 = file.iter().filter(|kind| is_direct(kind)).map(stated).sum();
    let per_page = |weight: fn(&Embedding) -> f64| -> f64 {
        let of = |(file, kind): (&Spanned<Type>, &Kind)| {
            kind.embeds.map_or(0.0, |embedding| stated(file) / direct_share * weight(&embedding))
        };
        file.iter().zip(&kinds).map(of).sum()
    };
    let asks_per_page = 1.0 + per_page(|embedding| embedding.mean_count);
    let asks_per_new_page = 1.0 + per_page(|embedding| embedding.mean_new_count);
    let names_per_page =
        1.0 + per_page(|embedding| embedding.mean_new_count * (1.0 - embedding.shared_share));
    for index in 0..kinds.len() {
        let share = |mean: fn(&Embedding) -> f64| share_of(file, &kinds, index, mean);
        let (asked, new) = (share(|of| of.mean_count), share(|of| of.mean_new_count));
        kinds[index].share = asked / direct_share / asks_per_page;
        kinds[index].new_share = new / direct_share / asks_per_new_page;
        check_share(source, &file[index], kinds[index].new_share)?;
    }
    let public = file.iter().map(|kind| public(kind.as_ref())).collect();
    Ok(Types { public, direct: direct(file, direct_share), kinds, asks_per_page, names_per_page })
}

fn is_direct(kind: &Spanned<Type>) -> bool {
    kind.as_ref().asked == Asked::Directly
}

fn stated(kind: &Spanned<Type>) -> f64 {
    kind.as_ref().share.as_ref().value
}

fn public(kind: &Type) -> ContentType {
    ContentType {
        name: kind.name.as_ref().clone(),
        mime: kind.mime.as_ref().clone(),
        extension: kind.extension.as_ref().clone(),
    }
}

fn check_count(source: &Source<'_>, file: &File) -> Result<(), WorkloadError> {
    match file.get(TYPES_MAX) {
        _ if file.is_empty() => {
            Err(source.error(0, "no [[type]]: a workload needs at least one content type"))
        }
        Some(kind) => Err(source.error_at(kind, format!("more than {TYPES_MAX} content types"))),
        None => Ok(()),
    }
}

fn check_shares(source: &Source<'_>, file: &File) -> Result<(), WorkloadError> {
    let sum: f64 = file.iter().map(stated).sum();
    if (sum - 1.0).abs() > ROUNDING {
        let message = format!(
            "share: the shares of all types sum to {:.2} %; they must sum to 100 %",
            sum * 100.0
        );
        return Err(source.error_at(&file[0].as_ref().share, message));
    }
    if !file.iter().any(|kind| is_direct(kind) && stated(kind) > 0.0) {
        let message = "asked: no type with a share above 0 % is asked for directly, so nothing would be asked for";
        return Err(source.error_at(&file[0], message));
    }
    Ok(())
}

fn check_texts(source: &Source<'_>, kind: &Type, before: &File) -> Result<(), WorkloadError> {
    let name = kind.name.as_ref();
    if name.is_empty() || before.iter().any(|other| other.as_ref().name.as_ref() == name) {
        return Err(
            source.error_at(&kind.name, format!("name: \"{name}\" is empty or there twice"))
        );
    }
    let mime = kind.mime.as_ref();
    if mime.len() > MIME_BYTES_MAX
        || !mime.contains('/')
        || !mime.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(source.error_at(&kind.mime, format!("mime: \"{mime}\" is not like image/gif")));
    }
    if !is_extension(kind.extension.as_ref().as_bytes()) {
        let message = "extension: must be 1 to 8 small letters or digits, without a dot";
        return Err(source.error_at(&kind.extension, message));
    }
    Ok(())
}

fn build_kind(
    source: &Source<'_>,
    kind: &Type,
    file: &File,
    names: &Names,
) -> Result<Kind, WorkloadError> {
    let size_min = size_limit(source, "size_min", kind.size_min.as_ref(), 1)?;
    let size_max = size_limit(source, "size_max", kind.size_max.as_ref(), OBJECT_BYTES_MAX)?;
    if let Some(max) = kind.size_max.as_ref().filter(|_| size_min > size_max) {
        return Err(source.error_at(max, "size_max: is below size_min"));
    }
    let life = kind.life_cycle.as_ref();
    if !(CYCLE_US_MIN as f64..=CYCLE_US_MAX as f64).contains(&life.cycle.at(0.5)) {
        let message =
            "life_cycle: must be between 2 s and 25 y; for what never changes write constant(10 y)";
        return Err(source.error_at(&kind.life_cycle, message));
    }
    let size = Size { distribution: kind.size.distribution, min: size_min, max: size_max };
    let embeds = kind
        .embeds
        .as_ref()
        .map(|embeds| embedding(source, kind, &size, embeds, file, names))
        .transpose()?;
    let choice = SizeChoice::of(names, kind.cachable.value);
    Ok(Kind {
        size: size.distribution,
        size_min,
        size_max,
        cachable: Chance::new(kind.cachable.value),
        cycle: life.cycle,
        variance: life.variance,
        compressible: kind.compressible,
        embeds,
        share: 0.0,
        new_share: 0.0,
        cachable_share: kind.cachable.value,
        mean_bytes: match kind.asked {
            Asked::Directly => size.mean(&choice),
            Asked::Embedded => size.mean(&SizeChoice::NONE),
        },
    })
}

fn size_limit(
    source: &Source<'_>,
    key: &str,
    limit: Option<&Spanned<Amount<Bytes>>>,
    default: u64,
) -> Result<u64, WorkloadError> {
    let Some(limit) = limit else { return Ok(default) };
    let bytes = limit.as_ref().value;
    if !(1.0..=OBJECT_BYTES_MAX as f64).contains(&bytes) {
        return Err(source.error_at(limit, format!("{key}: must be between 1 B and 1 GB")));
    }
    Ok(bytes.round() as u64)
}

fn embedding(
    source: &Source<'_>,
    kind: &Type,
    room: &Size,
    embeds: &Spanned<Embeds>,
    file: &File,
    names: &Names,
) -> Result<Embedding, WorkloadError> {
    if kind.asked == Asked::Embedded {
        return Err(
            source.error_at(embeds, "embeds: what is embedded itself cannot embed anything")
        );
    }
    let embeds = embeds.as_ref();
    let target = embeds.kind.as_ref();
    let index = file.iter().position(|other| other.as_ref().name.as_ref() == target);
    let Some(index) = index.filter(|index| !is_direct(&file[*index])) else {
        let message = format!("embeds: there is no type \"{target}\" with asked = \"embedded\"");
        return Err(source.error_at(&embeds.kind, message));
    };
    let count = embeds.count.as_ref().distribution;
    if !count.max().is_some_and(|max| (1.0..=EMBEDDED_MAX as f64).contains(&max)) {
        let message =
            format!("count: must be constant, uniform or zipf, and between 1 and {EMBEDDED_MAX}");
        return Err(source.error_at(&embeds.count, message));
    }
    let shared_share = embeds.shared.as_ref().map_or(0.0, |shared| shared.as_ref().value);
    if let (Some(shared), Names::Fixed { .. }) = (&embeds.shared, names) {
        return Err(source.error_at(shared, "shared: has no meaning with fixed_set; leave it out"));
    }
    let tag_bytes = embeds.tag.as_ref().map_or(0, |tag| tag.value.round() as u64);
    let mean_count = |choice: &SizeChoice| room.mean_count(count, tag_bytes, choice);
    Ok(Embedding {
        kind: u8::try_from(index).unwrap_or(u8::MAX),
        count,
        tag_bytes,
        mean_count: mean_count(&SizeChoice::of(names, kind.cachable.value)),
        mean_new_count: mean_count(&SizeChoice::NONE),
        shared_share,
        shared: Chance::new(shared_share),
        first_after_us: pause_us(source, "first_after", &embeds.first_after)?,
        spacing_us: pause_us(source, "spacing", &embeds.spacing)?,
    })
}

fn check_embedded(source: &Source<'_>, file: &File) -> Result<(), WorkloadError> {
    let embeds = |name: &str| {
        let target = |kind: &Spanned<Type>| -> Option<bool> {
            Some(kind.as_ref().embeds.as_ref()?.as_ref().kind.as_ref() == name)
        };
        file.iter().any(|kind| target(kind) == Some(true))
    };
    match file.iter().find(|kind| !is_direct(kind) && !embeds(kind.as_ref().name.as_ref())) {
        Some(kind) => {
            let name = kind.as_ref().name.as_ref();
            let message = format!(
                "name: \"{name}\" is asked for only where it is embedded, but no type embeds it"
            );
            Err(source.error_at(&kind.as_ref().name, message))
        }
        None => Ok(()),
    }
}

/// The part of a type in what pages of all directly requested types bring, as the shares of those
/// are stated; `mean` is the number of embedded objects.
fn share_of(file: &File, kinds: &[Kind], index: usize, mean: fn(&Embedding) -> f64) -> f64 {
    if is_direct(&file[index]) {
        return stated(&file[index]);
    }
    let embedded_by = |(page, kind): (&Spanned<Type>, &Kind)| match &kind.embeds {
        Some(embedding) if usize::from(embedding.kind) == index => stated(page) * mean(embedding),
        _ => 0.0,
    };
    file.iter().zip(kinds).map(embedded_by).sum()
}

/// Compares the share of an embedded type, as it follows from new pages, with the file's.
fn check_share(source: &Source<'_>, file: &Spanned<Type>, share: f64) -> Result<(), WorkloadError> {
    if is_direct(file) || (share - stated(file)).abs() <= EMBEDDED_SHARE_TOLERANCE {
        return Ok(());
    }
    let message = format!(
        "share: the pages embed so many of it that its share is {:.1} %; write that, or change `count`",
        share * 100.0
    );
    Err(source.error_at(&file.as_ref().share, message))
}

/// Probabilities of the directly requested types, as upper ends.
fn direct(file: &File, direct_share: f64) -> Vec<(Chance, u8)> {
    let mut end = 0.0;
    let mut direct = Vec::new();
    for (index, kind) in
        (0_u8..).zip(file).filter(|(_, kind)| is_direct(kind) && stated(kind) > 0.0)
    {
        end += stated(kind) / direct_share;
        direct.push((Chance::new(end), index));
    }
    direct
}
